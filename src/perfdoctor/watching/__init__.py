"""What goes wrong in a training while it runs, and when is it worth a window of full recording?"""

"""What changed between two recordings of a training, and is it more than noise?"""

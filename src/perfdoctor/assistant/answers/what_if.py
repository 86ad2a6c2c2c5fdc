"""How long is a step with these fixes, or with another size?"""

from __future__ import annotations

from perfdoctor.assistant.answers.analyze import prediction
from perfdoctor.assistant.arguments import WhatIf
from perfdoctor.assistant.bounded import Answer
from perfdoctor.assistant.desk import Desk, part_of
from perfdoctor.diagnosis.questions import questions
from perfdoctor.report.words import outlook, wording


def answer(asked: WhatIf, desk: Desk) -> Answer:
    examination = desk.again(asked.path, part_of(asked), questions(asked.changes, desk.known))
    said = outlook.together(examination.diagnosis)
    stages = [
        f"{stage.name}: {wording.duration(stage.step_ns)}{f' ({change})' if (change := outlook.change(stage)) else ''}"
        for stage in outlook.stages(examination.diagnosis, also_one=True)
    ]
    return Answer("\n".join([said, *stages]), {"sentence": said, **(prediction(examination.diagnosis) or {})})

"""An agent for workers: does what the prompt says, and writes down what it was asked and where.

`hold NAME`: the first process that is asked this never answers, later ones do. `keep NAME`: the same, but it
tells what is in its transcript. `key`: says which variables it has. `rate`: gives structured output. All else
is answered at once. With `FAR_CRASH`, which names `agent`, `worker` and `api` in turn, that dies or fails
whatever the prompt is; with `start`, the agent dies before it is asked. Started as
`python far_agent.py FOLDER [FLAGS…]`.
"""

import os
import re
import signal
import sys
from pathlib import Path

# It is started without the packages of the tests, so that it starts fast.
sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.fleet.frail_agent import FLAGS, FOLDER, VERSION, Agent, die, log, say


class FarAgent(Agent):
    def on_prompt(self, uuid: str, prompt: object) -> None:
        word, _, value = str(prompt).partition(" ")
        crash = os.environ.get("FAR_CRASH")
        parent = os.environ.get("TRACEPARENT")
        log(prompt=prompt, pid=os.getpid(), session=self.session, crash=crash, parent=parent)
        if crash:
            self.crash(uuid, crash)
            return
        self.init(uuid)
        if word == "keep":
            self.keep(uuid, str(prompt))
        if word in ("hold", "keep") and is_first(value):
            self.do_hang(uuid, "")
        elif word == "key":
            self.do_answer(uuid, ",".join(sorted(name for name in os.environ if name.startswith("FAR_"))))
        elif word == "rate":
            self.result(uuid, "", structured_output={"title": value, "stars": 5})
        else:
            self.do_answer(uuid, f"done {prompt}")

    def crash(self, uuid: str, victims: str) -> None:
        lines = (FOLDER / "log.jsonl").read_text(encoding="utf-8").splitlines()
        before = sum(f'"crash": "{victims}"' in line for line in lines) - 1
        victim = victims.split()[before % len(victims.split())]
        if victim == "api":
            self.init(uuid)
            self.api_failure(uuid, 529)
            return
        if victim == "worker":
            os.kill(os.getppid(), signal.SIGKILL)
        die()

    def keep(self, uuid: str, prompt: str) -> None:
        """Tell what would be in the transcript."""
        folder = Path(os.environ["CLAUDE_CONFIG_DIR"], "projects", re.sub(r"\W", "-", str(Path.cwd())))
        entry: dict[str, object] = {
            "type": "user",
            "uuid": uuid,
            "parentUuid": None,
            "sessionId": self.session,
        }
        entry |= {"cwd": str(Path.cwd()), "message": {"role": "user", "content": prompt}}
        path = folder / f"{self.session}.jsonl"
        say({"type": "transcript_mirror", "filePath": str(path), "entries": [entry]})


def is_first(name: str) -> bool:
    # Whole at once: whoever sees the file reads the number.
    draft = FOLDER / f"{name}.{os.getpid()}"
    draft.write_text(str(os.getpid()))
    try:
        os.link(draft, FOLDER / f"held-{name}")
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


if __name__ == "__main__":
    if "-v" in FLAGS:
        print(f"{VERSION} (Claude Code)")
    elif os.environ.get("FAR_CRASH") == "start":
        log(crash="start")
        die()
    else:
        FarAgent(0, []).serve()

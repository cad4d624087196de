import asyncio
import os

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ResultMessage,
    delete_session,
    fork_session,
    get_session_info,
    get_session_messages,
    list_sessions,
    query,
    rename_session,
    tag_session,
)


async def ask(prompt: str, **fields: object) -> str:
    session_id = ""
    async for message in query(
        prompt=prompt, options=ClaudeAgentOptions(cli_path=os.environ["AGENT"], **fields)
    ):
        if isinstance(message, ResultMessage):
            print(prompt, "->", message.result)
            session_id = message.session_id
    return session_id


async def main() -> None:
    chosen = "11111111-2222-4333-8444-555555555555"
    first = await ask("Remember the number 7", session_id=chosen)
    same = await ask("Which number?", resume=first)
    other = await ask("Which number?", resume=first, fork_session=True)
    latest = await ask("And the next?", continue_conversation=True)
    print("given:", first == chosen, "resumed:", same == first, "forked:", other != first, latest == other)

    print("listed:", len(list_sessions(directory=os.getcwd())))
    for message in get_session_messages(first):
        content = message.message["content"]
        print(message.type, content if isinstance(content, str) else [block.get("text") for block in content])

    rename_session(first, "Seven")
    tag_session(first, "numbers")
    info = get_session_info(first)
    assert info is not None
    print(info.summary, info.custom_title, info.tag, info.first_prompt, info.cwd == os.getcwd())

    copy = fork_session(first, title="Seven again")
    copied = get_session_info(copy.session_id)
    print(
        copied and copied.summary,
        len(get_session_messages(copy.session_id)) == len(get_session_messages(first)),
    )
    delete_session(copy.session_id)
    print(get_session_info(copy.session_id), get_session_messages(copy.session_id))
    try:
        rename_session(copy.session_id, "Gone")
    except FileNotFoundError:
        print("it is gone")


asyncio.run(main())

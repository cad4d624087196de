import asyncio
import os
import shutil

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    InMemorySessionStore,
    ResultMessage,
    SessionKey,
    SessionStore,
    SessionStoreEntry,
    get_session_messages_from_store,
    list_sessions_from_store,
    project_key_for_directory,
    query,
)


class Dictionary(SessionStore):
    """As little as a store can have."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, ...], list[SessionStoreEntry]] = {}

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        place = (key["project_key"], key["session_id"], key.get("subpath", ""))
        self.kept.setdefault(place, []).extend(entries)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        return self.kept.get((key["project_key"], key["session_id"], key.get("subpath", "")))


async def remember(store: SessionStore) -> str:
    options = ClaudeAgentOptions(cli_path=os.environ["AGENT"], session_store=store)
    session_id = ""
    async for message in query(prompt="Remember the number 7", options=options):
        if isinstance(message, ResultMessage):
            session_id = message.session_id
            kept = await store.load({"project_key": project_key_for_directory(), "session_id": session_id})
            print("at the result:", {entry["type"] for entry in kept or []} >= {"user", "assistant"})
    # The copy on this machine is not needed.
    shutil.rmtree(os.path.join(os.environ["CLAUDE_CONFIG_DIR"], "projects"))
    return session_id


async def recall(store: SessionStore, session_id: str) -> None:
    options = ClaudeAgentOptions(cli_path=os.environ["AGENT"], session_store=store, resume=session_id)
    async with ClaudeSDKClient(options) as client:
        await client.query("Which number?")
        async for message in client.receive_response():
            if isinstance(message, ResultMessage):
                print("resumed:", message.result, message.session_id == session_id)
    for entry in await get_session_messages_from_store(store, session_id):
        content = entry.message["content"]
        print(entry.type, content if isinstance(content, str) else [block.get("text") for block in content])


async def main() -> None:
    memory = InMemorySessionStore()
    session_id = await remember(memory)
    await recall(memory, session_id)
    print("listed:", [info.first_prompt for info in await list_sessions_from_store(memory)])
    dictionary = Dictionary()
    key: SessionKey = {"project_key": project_key_for_directory(), "session_id": session_id}
    await dictionary.append(key, memory.get_entries(key))
    await recall(dictionary, session_id)
    try:
        await list_sessions_from_store(dictionary)
    except ValueError:
        print("a dictionary cannot list")


asyncio.run(main())

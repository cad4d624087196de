"""Holds the Lua scripts that `RedisStore` runs on the server, each of them atomic.

All keys of a session are in one slot of a cluster. Times are the server's, in milliseconds.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DELETE", "LEASE", "LOOK", "PUT"]

_LEASE_OF: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease = redis.call('HMGET', KEYS[1], 'token', 'holder', 'until')
local left = lease[1] and tonumber(lease[3]) - now or 0
"""

LOOK: Final = (
    _LEASE_OF
    + """
-- KEYS: session, uuids, batches. ARGV: stamp's name, batch or '', uuids.
local known = {}
for i = 3, #ARGV do
    known[i - 2] = redis.call('SISMEMBER', KEYS[2], ARGV[i])
end
local is_known = ARGV[2] ~= '' and redis.call('SISMEMBER', KEYS[3], ARGV[2]) or 0
local found = redis.call('HMGET', KEYS[1], ARGV[1], 'summary')
return {found[1] or '', found[2] or '', is_known, known, lease[1] or '', lease[2] or '', left}
"""
)
"""What has to be known before an append."""

PUT: Final = (
    _LEASE_OF
    + """
-- KEYS: session, parts, entries, uuids, batches.
-- ARGV: token, stamp's name, stamp that was seen, new stamp, part, batch or '', summary, then uuid or '' and
-- entry in turns.
if left > 0 and lease[1] ~= ARGV[1] then
    return {'busy', lease[2], left}
end
if (redis.call('HGET', KEYS[1], ARGV[2]) or '') ~= ARGV[3] then
    return {'moved'}
end
local entries, uuids = {}, {}
local function flush(key, command, values)
    if #values > 0 then
        redis.call(command, key, unpack(values))
    end
    return {}
end
for i = 8, #ARGV, 2 do
    if ARGV[i] ~= '' then
        uuids[#uuids + 1] = ARGV[i]
    end
    entries[#entries + 1] = ARGV[i + 1]
    -- No more than some thousand arguments fit on Lua's stack.
    if #entries == 1000 then
        entries, uuids = flush(KEYS[3], 'RPUSH', entries), flush(KEYS[4], 'SADD', uuids)
    end
end
flush(KEYS[3], 'RPUSH', entries)
flush(KEYS[4], 'SADD', uuids)
if ARGV[6] ~= '' then
    redis.call('SADD', KEYS[5], ARGV[6])
end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[4])
if ARGV[5] ~= '' then
    redis.call('SADD', KEYS[2], ARGV[5])
elseif #ARGV >= 8 then
    local latest = tonumber(redis.call('HGET', KEYS[1], 'mtime') or 0)
    redis.call('HSET', KEYS[1], 'summary', ARGV[7], 'mtime', string.format('%.0f', math.max(now, latest + 1)))
end
return {'done'}
"""
)
"""Append, if nobody did since it was looked."""

DELETE: Final = (
    _LEASE_OF
    + """
-- KEYS: session, parts, and all that goes. ARGV: token, and the parts that there were, or for one part:
-- its name, its stamp's name.
if left > 0 and lease[1] ~= ARGV[1] then
    return {'busy', lease[2], left}
end
if ARGV[2] == 'part' then
    redis.call('SREM', KEYS[2], ARGV[3])
    redis.call('HDEL', KEYS[1], ARGV[4])
else
    if redis.call('SCARD', KEYS[2]) ~= #ARGV - 2 then
        return {'moved'}
    end
    for i = 3, #ARGV do
        if redis.call('SISMEMBER', KEYS[2], ARGV[i]) == 0 then
            return {'moved'}
        end
    end
    redis.call('DEL', KEYS[1], KEYS[2])
    if lease[1] then
        redis.call('HSET', KEYS[1], 'token', lease[1], 'holder', lease[2], 'until', lease[3])
    end
end
for i = 3, #KEYS do
    redis.call('UNLINK', KEYS[i])
end
return {'done'}
"""
)
"""Remove a part, or all of a session but its lease."""

LEASE: Final = (
    _LEASE_OF
    + """
-- KEYS: session. ARGV: what to do, token, holder, milliseconds.
if ARGV[1] == 'acquire' then
    -- Its own token is there if the answer to the first try was lost.
    if left > 0 and lease[1] ~= ARGV[2] then
        return {'busy', lease[2], left}
    end
    redis.call('HSET', KEYS[1], 'token', ARGV[2], 'holder', ARGV[3])
elseif lease[1] ~= ARGV[2] then
    return {'lost', lease[2] or ''}
end
if ARGV[1] == 'release' then
    redis.call('HDEL', KEYS[1], 'token', 'holder', 'until')
else
    redis.call('HSET', KEYS[1], 'until', string.format('%.0f', now + tonumber(ARGV[4])))
end
return {'done'}
"""
)

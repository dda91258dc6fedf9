-- Writing the configuration, what a room without one answers, and the call itself.

-- ARGV 3 version  4… field, value, …  Gives 1 when written: when the version is newer, or the same and
-- written by an earlier schema, which left fields out. Runs without the room's clock and counts.
local function configure(lost)
  local known = load_config()
  read_clock()
  local version = tonumber(ARGV[3])
  if known and (version < cfg.version or (version == cfg.version and cfg.schema >= SCHEMA)) then
    return 0
  end
  call('HSET', CONFIG, 'version', version, 'schema', SCHEMA, unpack(ARGV, 4))
  if not known then
    local history = lost or call('EXISTS', SEQ, VISITOR, ACTIVE, COUNTERS) > 0
    local refresh = tonumber(call('HGET', CONFIG, 'refresh_ms') or 0)
    call('HSET', CONFIG, 'epoch', math.max(1, cfg.epoch),
      'hold_until', history and clock + math.max(refresh, 60000) or 0)
    save_clock()
  end
  return 1
end

local function hold_reply(op)
  if op == 'enter' or op == 'poll' or op == 'extend' then
    return { 'hold', now, 0, 0, 0, 0, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
  elseif op == 'tick' then
    return { now, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0 }
  elseif op == 'stats' then
    return { now, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, {}, 0, 0 }
  elseif op == 'heartbeat' or op == 'lane' then
    local none = {}
    for i = 3, #ARGV do
      none[i - 2] = 0
    end
    return none
  elseif op == 'promote' then
    return 'stopped'
  elseif op == 'advance' then
    return 'unknown'
  elseif op == 'session' or op == 'prolong' then
    return { now, 0, 0, 0 }
  end
  return 0
end

local op = ARGV[1]
if op == 'configure' or op == 'recover' then
  return configure(op == 'recover')
end
local known = load_config()
read_clock()
if not known then
  return hold_reply(op)
end
if not ops[op] then
  return redis.error_reply('ERR the script of a room knows no operation ' .. op)
end
if op ~= 'stats' then
  save_clock()
end
count_people()
load_flow()
local reply = ops[op]()
save_counters()
return reply

end

return room()

-- room.lua: the whole state machine of one waiting room, in one atomic call.
--
-- KEYS   1 active   2 granted  3 queue    4 seen      5 parked  6 lane    7 visitor  8 inside
--        9 seq     10 rate    11 config  12 counters 13 events 14 journal
--       15 the caller's limit: `addr:<client>` for enter, `checks:<sid>` for poll; absent otherwise.
--       All under one hash tag; the meaning of each stands in queueing/keys.py.
-- ARGV   1 operation   2 test time in ms, or ''   3… the operation's own, see `ops` below.
-- RETURN enter, poll, extend: one flat place (see `place`). tick, stats: flat arrays. heartbeat: a list of
--        0/1. The others: one number or word.
--
-- TIME   The store's own TIME. ARGV[2] is believed only when the config hash has `test_clock` = 1, which
--        no operation sets: only a test writes it. *Room time* is monotonic and stands still in gaps of
--        more than 5 s between two calls, so an outage silences, lapses and expires nobody. Every deadline
--        kept here is in room time; every time in a reply is in store time.
-- ORDER  Each call: free expired slots, park lapsed grants and silent waiters, forget who is past the return
--        window (bounded), then the caller's own check-in, then promote (bounded), then answer.
-- HOLD   A config hash without a version means that the store lost the room (or never had it): every
--        operation but configure and recover then answers `hold` and writes nothing.
-- ERRORS The first write is an HSET, which an out-of-memory or read-only store refuses: such a call has
--        done nothing at all.
--
-- INVARIANTS
--   I1  Nobody is admitted while granted + active >= capacity (adoption is no admission; mode off has no
--       capacity).
--   I2  Each admission goes to the lowest ticket among the living; an operator's is marked as such.
--   I3  joined = admitted + granted + left + missed + removed + banned + reset + waiting + parked.
--   I4  `visitor` has exactly the members of queue, parked and granted; `seen` exactly those of queue.
--   No key of a populated room has a TTL; only the limits of KEYS[15] expire.

local call = redis.call
local ACTIVE, GRANTED, QUEUE, SEEN, PARKED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local LANE, VISITOR, INSIDE, SEQ, RATE = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local CONFIG, COUNTERS, EVENTS, JOURNAL, LIMIT = KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15]

local SWEEP = 25 -- slots freed, people parked and people forgotten in a call, together
local PROMOTE = 25 -- grants in a call
local DIRECT = 100 -- as few living (or ghosts) as this are looked at one by one
local GAP_MS = 5000 -- room time stands still in longer gaps
local OUTAGE_MS = 2000 -- gateways tick more often: in a longer gap none of them reached the store
local ADOPT_MS = 1000 -- after it, nobody is admitted until gateways have said whom they let in meanwhile
local BEACON_MS = 15000 -- a closed page counts as silent after this
local LAPSES = 3 -- the lapse that makes a miss
local EXTENSIONS = 10
local FLOW_MS, FLOW_MIN, FLOW_MAX_MS = 30000, 10, 600000 -- window of the release rate
local JOURNAL_KEPT = 10000

local cfg = {} -- the room's configuration
local now, clock = 0, 0 -- store time, room time
local n = {} -- people: queue (with ghosts), living, parked, granted, active
local added = {} -- counters to add at the end of the call
local flow = {} -- grants, and their number at the beginning of this and of the previous window
local more = false -- a bound was hit
local returned = false -- the store was out of reach for an open room until just now

-- Reading and writing what the room is ------------------------------------------------------------

local FIELDS = {
  'version', 'clock', 'test_clock', 'epoch', 'reset_ms', 'journal', 'hold_until', 'flow', 'mode', 'unit',
  'capacity', 'rate', 'active_ttl_ms', 'absolute_ttl_ms', 'grant_ttl_ms', 'queue_ttl_ms',
  'return_window_ms', 'max_queue', 'entries_per_minute', 'polls_per_second', 'events_kept', 'on_outage',
}

local function load_config()
  local values = call('HMGET', CONFIG, unpack(FIELDS))
  for i = 1, #FIELDS do
    cfg[FIELDS[i]] = tonumber(values[i]) or values[i] or 0
  end
  return cfg.version ~= 0
end

local function read_clock()
  if cfg.test_clock == 1 and ARGV[2] ~= '' then
    now = tonumber(ARGV[2])
  else
    local t = call('TIME')
    now = t[1] * 1000 + math.floor(t[2] / 1000)
  end
  clock = now
  if cfg.clock ~= 0 then
    local room, store = string.match(cfg.clock, '^(%d+),(%d+)$')
    local gap = now - store
    clock = tonumber(room)
    if gap > 0 and gap <= GAP_MS then
      clock = clock + gap
    end
    if gap > OUTAGE_MS and cfg.on_outage == 'open' then
      cfg.hold_until = math.max(cfg.hold_until, clock + ADOPT_MS)
      returned = true
    end
  end
end

local function save_clock()
  call('HSET', CONFIG, 'clock', string.format('%.0f,%.0f', clock, now))
  if returned then
    call('HSET', CONFIG, 'hold_until', cfg.hold_until)
  end
end

local function cutoff()
  return clock - cfg.queue_ttl_ms
end

local function count_people()
  n.queue = call('ZCARD', QUEUE)
  n.living = n.queue > 0 and call('ZCOUNT', SEEN, cutoff(), '+inf') or 0
  n.parked = call('ZCARD', PARKED)
  n.granted = call('ZCARD', GRANTED)
  n.active = call('ZCARD', ACTIVE)
end

local function load_flow()
  if cfg.flow == 0 then
    flow = { total = 0, t0 = clock, n0 = 0, t1 = clock, n1 = 0 }
    return
  end
  local total, t0, n0, t1, n1 = string.match(cfg.flow, '^(%d+),(%d+),(%d+),(%d+),(%d+)$')
  flow = { total = tonumber(total), t0 = tonumber(t0), n0 = tonumber(n0), t1 = tonumber(t1), n1 = tonumber(n1) }
end

local function save_flow()
  call('HSET', CONFIG, 'flow',
    string.format('%.0f,%.0f,%.0f,%.0f,%.0f', flow.total, flow.t0, flow.n0, flow.t1, flow.n1))
end

-- The rate is that of the previous window and this one, 30 s each or as long as ten grants take.
local function turn_flow()
  local age = clock - flow.t0
  if age >= FLOW_MAX_MS or (age >= FLOW_MS and flow.total - flow.n0 >= FLOW_MIN) then
    flow.t1, flow.n1, flow.t0, flow.n0 = flow.t0, flow.n0, clock, flow.total
    save_flow()
  end
end

-- A line that begins anew is not measured by the time in which nobody waited.
local function restart_flow()
  flow.t0, flow.n0, flow.t1, flow.n1 = clock, flow.total, clock, flow.total
  save_flow()
end

local function count(name, by)
  added[name] = (added[name] or 0) + (by or 1)
end

local function save_counters()
  for name, by in pairs(added) do
    call('HINCRBY', COUNTERS, name, by)
  end
end

local function event(kind, sid, ticket, reason)
  call('XADD', EVENTS, 'MAXLEN', '~', cfg.events_kept, '*', 'kind', kind, 'sid', sid, 'ticket', ticket,
    'reason', reason, 'at', now, 'waiting', n.living, 'parked', n.parked + n.queue - n.living,
    'granted', n.granted, 'active', n.active)
end

local function journal(kind, sid)
  cfg.journal = call('HINCRBY', CONFIG, 'journal', 1)
  call('XADD', JOURNAL, 'MAXLEN', '~', JOURNAL_KEPT, string.format('%.0f-0', cfg.journal),
    'kind', kind, 'sid', sid, 'at', now)
end

-- Records: text, so that an operator can read them ------------------------------------------------

local function pack(v)
  return string.format('%.0f,%d,%.0f,%d,%d,%d,%.0f,%s',
    v.ticket, v.rank, v.joined, v.lapses, v.told, v.extensions, v.seen, v.client)
end

local function unpack_record(text)
  local ticket, rank, joined, lapses, told, extensions, seen, client =
    string.match(text, '^(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(.*)$')
  return {
    ticket = tonumber(ticket), rank = tonumber(rank), joined = tonumber(joined), lapses = tonumber(lapses),
    told = tonumber(told), extensions = tonumber(extensions), seen = tonumber(seen), client = client,
  }
end

local function record(sid)
  local text = call('HGET', VISITOR, sid)
  return text and unpack_record(text)
end

local function inside(sid)
  local text = call('HGET', INSIDE, sid)
  if not text then
    return nil
  end
  local ticket, rank, joined, since, client = string.match(text, '^(%d+),(%d+),(%d+),(%d+),(.*)$')
  return { ticket = tonumber(ticket), rank = tonumber(rank), joined = tonumber(joined), since = tonumber(since),
    client = client }
end

-- Sliding limits: no window of `window` ms holds more than `limit` -----------------------------------

local function wait_for(key, limit, window)
  local oldest = call('LINDEX', key, limit - 1)
  if not oldest then
    return 0
  end
  return math.max(0, tonumber(oldest) + window - clock)
end

local function note(key, limit, ttl)
  call('LPUSH', key, clock)
  call('LTRIM', key, 0, limit - 1)
  if ttl and cfg.test_clock ~= 1 then -- the store's own clock expires keys: not under a test's clock
    call('PEXPIRE', key, ttl)
  end
end

-- Transitions --------------------------------------------------------------------------------------

local function slot_end(since, old)
  local fresh = clock + cfg.active_ttl_ms
  if cfg.absolute_ttl_ms > 0 and since then
    fresh = math.min(fresh, since + cfg.absolute_ttl_ms)
  end
  return math.max(old or 0, fresh) -- a pass never outlives its slot, so a slot never shrinks
end

-- Puts a slot under `holder`. `v` is the visitor's record; a lease has none of its own.
local function occupy(holder, sid, v)
  call('ZADD', ACTIVE, slot_end(clock), holder)
  if holder == sid then
    call('HSET', INSIDE, sid, string.format('%.0f,%d,%.0f,%.0f,%s', v.ticket, v.rank, v.joined, clock, v.client))
  end
  n.active = n.active + 1
  count('admitted')
end

local function vacate(holder, kind, reason)
  if call('ZREM', ACTIVE, holder) == 0 then
    return false
  end
  local v = inside(holder)
  if v then
    call('HDEL', INSIDE, holder)
  end
  n.active = n.active - 1
  count(kind)
  event(kind, holder, v and v.ticket or 0, reason or '')
  return true
end

local function forget(sid, ticket, kind, reason)
  call('HDEL', VISITOR, sid)
  count(kind)
  event(kind, sid, ticket, reason or '')
end

local function lapse(sid)
  local v = record(sid)
  call('ZREM', GRANTED, sid)
  n.granted = n.granted - 1
  count('lapsed')
  v.lapses, v.told, v.extensions = v.lapses + 1, 0, 0
  local till = v.seen + cfg.return_window_ms
  if v.lapses >= LAPSES then
    return forget(sid, v.ticket, 'missed', 'lapses')
  elseif till <= clock then
    return forget(sid, v.ticket, 'missed', 'return_window')
  end
  call('ZADD', PARKED, till, sid)
  call('HSET', VISITOR, sid, pack(v))
  n.parked = n.parked + 1
  event('parked', sid, v.ticket, 'lapsed')
end

-- Moves silent waiters out of the line: `sids` with their check-ins `seen`, already known to be silent.
local function park(sids, seen)
  if #sids == 0 then
    return
  end
  call('ZREM', QUEUE, unpack(sids))
  call('ZREM', SEEN, unpack(sids))
  n.queue = n.queue - #sids
  local texts, parked = call('HMGET', VISITOR, unpack(sids)), {}
  for i, sid in ipairs(sids) do
    local v = unpack_record(texts[i])
    local till = math.max(tonumber(seen[i]), v.seen) + cfg.return_window_ms
    if till <= clock then
      forget(sid, v.ticket, 'missed', 'return_window')
    else
      parked[#parked + 1], parked[#parked + 2] = till, sid
      n.parked = n.parked + 1
      count('parked')
      event('parked', sid, v.ticket, 'silent')
    end
  end
  if #parked > 0 then
    call('ZADD', PARKED, unpack(parked))
  end
end

local function miss_parked(sid)
  call('ZREM', PARKED, sid)
  n.parked = n.parked - 1
  forget(sid, record(sid).ticket, 'missed', 'return_window')
end

-- Work that is due, bounded --------------------------------------------------------------------------

local function due(key, upto, limit)
  return call('ZRANGEBYSCORE', key, '-inf', upto, 'LIMIT', 0, limit)
end

local function sweep()
  local left = SWEEP
  if n.active > 0 then
    local slots = due(ACTIVE, clock, left)
    for _, holder in ipairs(slots) do
      vacate(holder, 'expired')
    end
    left = left - #slots
  end
  if left > 0 and n.granted > 0 then
    local lapsed = due(GRANTED, clock, left)
    for _, sid in ipairs(lapsed) do
      lapse(sid)
    end
    left = left - #lapsed
  end
  if left > 0 and n.queue > n.living then
    local silent = call('ZRANGEBYSCORE', SEEN, '-inf', '(' .. cutoff(), 'WITHSCORES', 'LIMIT', 0, left)
    local sids, seen = {}, {}
    for i = 1, #silent, 2 do
      sids[#sids + 1], seen[#seen + 1] = silent[i], silent[i + 1]
    end
    park(sids, seen)
    left = left - #sids
  end
  if left > 0 and n.parked > 0 then
    local gone = due(PARKED, clock, left)
    for _, sid in ipairs(gone) do
      miss_parked(sid)
    end
    left = left - #gone
  end
  more = more or left <= 0
end

local function held()
  return cfg.hold_until > clock
end

local function stopped()
  return cfg.mode == 'paused' or cfg.mode == 'reject' or held()
end

local function slots_free()
  if stopped() then
    return 0
  elseif cfg.mode == 'off' then
    return PROMOTE + 1
  end
  return math.max(0, cfg.capacity - n.active - n.granted)
end

-- How many of `want` admissions the rate allows now: the k-th needs the (rate - k)-th last to be a second old.
local function rate_allows(want)
  if cfg.rate == 0 then
    return want
  end
  for k = 1, math.min(want, cfg.rate) do
    local at = call('LINDEX', RATE, cfg.rate - k)
    if at and at + 1000 > clock then
      return k - 1
    end
  end
  return math.min(want, cfg.rate)
end

local function note_admissions(number)
  if cfg.rate > 0 and number > 0 then
    local times = {}
    for k = 1, number do
      times[k] = clock
    end
    call('LPUSH', RATE, unpack(times))
    call('LTRIM', RATE, 0, cfg.rate - 1)
  end
end

-- Reserves slots for these living waiters, in this order.
local function grant(sids, reason)
  if #sids == 0 then
    return
  end
  local texts, seen = call('HMGET', VISITOR, unpack(sids)), call('ZMSCORE', SEEN, unpack(sids))
  local records, deadlines = {}, {}
  for i, sid in ipairs(sids) do
    local v = unpack_record(texts[i])
    v.seen, v.told, v.extensions = math.max(v.seen, tonumber(seen[i])), 0, 0
    records[2 * i - 1], records[2 * i] = sid, pack(v)
    deadlines[2 * i - 1], deadlines[2 * i] = clock + cfg.grant_ttl_ms, sid
    n.queue, n.living, n.granted = n.queue - 1, n.living - 1, n.granted + 1
    event('granted', sid, v.ticket, reason)
  end
  call('ZREM', QUEUE, unpack(sids))
  call('ZREM', SEEN, unpack(sids))
  call('ZADD', GRANTED, unpack(deadlines))
  call('HSET', VISITOR, unpack(records))
  note_admissions(#sids)
  count('grants', #sids)
  flow.total = flow.total + #sids
  save_flow()
end

-- The first `want` living of the line by ticket, given that some of the line are silent.
local function first_of_few(want)
  local sids = call('ZRANGEBYSCORE', SEEN, cutoff(), '+inf')
  local tickets, order = call('ZMSCORE', QUEUE, unpack(sids)), {}
  for i, sid in ipairs(sids) do
    order[i] = { tonumber(tickets[i]), sid }
  end
  table.sort(order, function(a, b) return a[1] < b[1] end)
  local first = {}
  for i = 1, math.min(want, #order) do
    first[i] = order[i][2]
  end
  return first
end

local function first_of_head(want)
  local sids = call('ZRANGE', QUEUE, 0, DIRECT - 1)
  local seen, first, silent, silent_seen = call('ZMSCORE', SEEN, unpack(sids)), {}, {}, {}
  for i, sid in ipairs(sids) do
    if tonumber(seen[i]) >= cutoff() then
      if #first < want then
        first[#first + 1] = sid
      end
    elseif #first == 0 and #silent < SWEEP and not more then
      silent[#silent + 1], silent_seen[#silent_seen + 1] = sid, seen[i]
    end
  end
  park(silent, silent_seen)
  more = more or #first < want
  return first
end

local function first_living(want)
  if n.queue == n.living then
    return call('ZRANGE', QUEUE, 0, want - 1)
  elseif n.living <= DIRECT then
    return first_of_few(want)
  end
  return first_of_head(want)
end

local function promote()
  local want = rate_allows(math.min(slots_free(), n.living, PROMOTE))
  if want <= 0 then
    return
  end
  local sids = first_living(want)
  grant(sids, 'turn')
  more = more or (#sids == PROMOTE and n.living > 0 and slots_free() > 0 and rate_allows(1) == 1)
end

-- The caller -------------------------------------------------------------------------------------------

-- What fell due for this very visitor counts even when the bounded sweep has not come to it.
local function settle(holder, sid)
  local ends = call('ZSCORE', ACTIVE, holder)
  if ends and tonumber(ends) <= clock then
    vacate(holder, 'expired')
  end
  local deadline = call('ZSCORE', GRANTED, sid)
  if deadline and tonumber(deadline) <= clock then
    lapse(sid)
  end
  local till = call('ZSCORE', PARKED, sid)
  if till and tonumber(till) <= clock then
    miss_parked(sid)
  end
end

-- Applies the check-in of who is in the line, parked or granted. Gives the record, or nil for a stranger.
local function check_in(sid)
  local v = record(sid)
  if not v then
    return nil
  end
  local seen = call('ZSCORE', SEEN, sid)
  if seen then
    seen = tonumber(seen)
    if seen < cutoff() then
      if math.max(seen, v.seen) + cfg.return_window_ms <= clock then
        park({ sid }, { seen })
        return nil
      end
      n.living = n.living + 1
      count('returned')
      event('returned', sid, v.ticket, 'unswept')
    end
    call('ZADD', SEEN, clock, sid)
  elseif call('ZREM', PARKED, sid) == 1 then
    call('ZADD', QUEUE, v.ticket, sid)
    call('ZADD', SEEN, clock, sid)
    n.parked, n.queue, n.living = n.parked - 1, n.queue + 1, n.living + 1
    count('returned')
    event('returned', sid, v.ticket, 'parked')
  else
    v.seen = clock
    call('HSET', VISITOR, sid, pack(v))
  end
  return v
end

-- Living people with a lower ticket. Exact while few are silent or few are living; else the least that is
-- certain not to be too low, kept at what was shown while that may still be the truth.
local function people_ahead(sid, ticket, shown)
  local rank, ghosts = call('ZRANK', QUEUE, sid), n.queue - n.living
  if ghosts == 0 or rank == 0 then
    return rank
  elseif n.living <= DIRECT or ghosts <= DIRECT then
    local few = n.living <= ghosts and call('ZRANGEBYSCORE', SEEN, cutoff(), '+inf')
      or call('ZRANGEBYSCORE', SEEN, '-inf', '(' .. cutoff())
    local before = 0
    for _, other in ipairs(call('ZMSCORE', QUEUE, unpack(few))) do
      if tonumber(other) < ticket then
        before = before + 1
      end
    end
    return n.living <= ghosts and before or rank - before
  end
  local most, least = math.min(rank, n.living - 1), math.max(0, rank - ghosts)
  if shown > 0 and shown - 1 < most and shown - 1 >= least then
    return shown - 1
  end
  return most
end

-- The flat reply; times leave here as store time. `p` holds what differs from nothing.
local function place(state, p)
  p = p or {}
  return {
    state, now, p.ticket or 0, p.ahead or 0, p.ends and math.floor(now + p.ends - clock) or 0, p.joined or 0,
    p.reason or '', cfg.reset_ms, cfg.epoch, flow.total - flow.n1, clock - flow.t1, math.ceil(p.retry or 0),
    p.extensions or 0, p.new and 1 or 0, n.living, n.parked + n.queue - n.living, n.granted, n.active,
    tonumber(call('GET', SEQ) or 0),
  }
end

local function waiting_place(sid, v, shown, state)
  local ahead = people_ahead(sid, v.ticket, shown)
  if not state then
    state = held() and 'hold' or stopped() and 'paused' or 'waiting'
  end
  return place(state, {
    ticket = v.ticket, joined = v.joined, ahead = ahead, new = v.new,
    reason = shown > 0 and ahead + 1 > shown and 'returned' or '', retry = v.retry,
  })
end

local function active_place(holder)
  local v = inside(holder) or {}
  return place('active', { ticket = v.ticket, joined = v.joined, ends = tonumber(call('ZSCORE', ACTIVE, holder)) })
end

local function granted_place(v, ends)
  return place('granted', { ticket = v.ticket, joined = v.joined, ends = ends, extensions = v.extensions })
end

local function stranger_place(iat, ticket)
  if held() then
    return place('hold')
  elseif iat <= cfg.reset_ms then
    return place('reset')
  elseif ticket > 0 then
    return place('missed')
  end
  return nil
end

local function queue_is_full()
  return cfg.max_queue > 0
    and (n.living >= cfg.max_queue or n.queue + n.parked >= 2 * cfg.max_queue)
end

-- Somebody without a place: inside at once when nobody living is ahead and slot and rate allow, else a ticket.
local function newcomer(c)
  if cfg.mode == 'closed' then
    return place('closed')
  elseif cfg.mode == 'reject' then
    return place('rejected')
  end
  local limited = not c.exempt and cfg.entries_per_minute > 0
  local retry = limited and wait_for(LIMIT, cfg.entries_per_minute, 60000) or 0
  if retry > 0 then
    return place('limited', { retry = retry })
  end
  local direct = n.living == 0 and slots_free() > 0 and rate_allows(1) == 1
  if not direct and queue_is_full() then
    return place('full')
  end
  if limited then
    note(LIMIT, cfg.entries_per_minute, 60000)
  end
  count('joined')
  local v = { ticket = 0, rank = 0, joined = now, lapses = 0, told = 0, extensions = 0, seen = 0,
    client = c.client, new = true }
  if direct then
    occupy(c.holder, c.sid, v)
    note_admissions(1)
    count('direct')
    event('admitted', c.holder, 0, 'direct')
    return place('active', { joined = now, new = true, ends = slot_end(clock) })
  end
  if n.living == 0 then
    restart_flow()
  end
  v.ticket = call('INCR', SEQ)
  call('ZADD', QUEUE, v.ticket, c.sid)
  call('ZADD', SEEN, clock, c.sid)
  call('HSET', VISITOR, c.sid, pack(v))
  n.queue, n.living = n.queue + 1, n.living + 1
  event('joined', c.sid, v.ticket, '')
  return waiting_place(c.sid, v, 0)
end

-- Takes a visitor out of the room, wherever it stands. Gives whether it was there.
local function take_out(sid, kind, entry)
  local v = record(sid)
  if v then
    if call('ZREM', QUEUE, sid) == 1 then
      local seen = tonumber(call('ZSCORE', SEEN, sid))
      call('ZREM', SEEN, sid)
      n.queue = n.queue - 1
      n.living = n.living - (seen >= cutoff() and 1 or 0)
    else
      n.parked = n.parked - call('ZREM', PARKED, sid)
      n.granted = n.granted - call('ZREM', GRANTED, sid)
    end
    forget(sid, v.ticket, kind)
  end
  local had_slot = vacate(sid, 'released', kind)
  if had_slot or (cfg.unit == 'requests' and entry == 'expel') then
    journal(entry, sid)
  end
  return (v or had_slot) and true or false
end

-- Operations ---------------------------------------------------------------------------------------------

local ops = {}

-- ARGV 3 sid  4 client  5 iat ms  6 ticket  7 shown  8 lease  9 exempt (0/1)
function ops.enter()
  local c = { sid = ARGV[3], client = ARGV[4], exempt = ARGV[9] == '1', holder = ARGV[3] }
  if ARGV[8] ~= '' then
    c.holder = ARGV[8]
  end
  sweep()
  settle(c.holder, c.sid)
  local ends = call('ZSCORE', ACTIVE, c.holder)
  if ends then
    local known = inside(c.holder)
    call('ZADD', ACTIVE, slot_end(known and known.since, tonumber(ends)), c.holder)
    promote()
    return active_place(c.holder)
  end
  local v = check_in(c.sid)
  promote()
  if not v then
    return stranger_place(tonumber(ARGV[5]), tonumber(ARGV[6])) or newcomer(c)
  elseif call('ZREM', GRANTED, c.sid) == 1 then
    n.granted = n.granted - 1
    call('HDEL', VISITOR, c.sid)
    occupy(c.holder, c.sid, v)
    event('admitted', c.holder, v.ticket, 'claim')
    return place('active', { ticket = v.ticket, joined = v.joined, ends = slot_end(clock) })
  end
  return waiting_place(c.sid, v, tonumber(ARGV[7]))
end

-- The claim time starts again once, when the visitor is first told.
local function tell(sid, v, deadline)
  if v.told == 0 then
    v.told = 1
    deadline = clock + cfg.grant_ttl_ms
    call('ZADD', GRANTED, deadline, sid)
    call('HSET', VISITOR, sid, pack(v))
  end
  return deadline
end

-- ARGV 3 sid  4 iat ms  5 ticket  6 shown
function ops.poll()
  local sid, shown = ARGV[3], tonumber(ARGV[6])
  sweep()
  settle(sid, sid)
  if call('ZSCORE', ACTIVE, sid) then
    promote()
    return active_place(sid)
  end
  local v = check_in(sid)
  promote()
  if not v then
    return stranger_place(tonumber(ARGV[4]), tonumber(ARGV[5])) or place('none')
  end
  v = record(sid)
  v.retry = wait_for(LIMIT, cfg.polls_per_second, 1000)
  if v.retry == 0 then
    note(LIMIT, cfg.polls_per_second, 1000)
  end
  local deadline = call('ZSCORE', GRANTED, sid)
  if deadline and v.retry > 0 then
    return place('limited', { ticket = v.ticket, joined = v.joined, retry = v.retry })
  elseif deadline then
    return granted_place(v, tell(sid, v, tonumber(deadline)))
  end
  return waiting_place(sid, v, shown, v.retry > 0 and 'limited' or nil)
end

-- ARGV 3… sids or leases
function ops.heartbeat()
  sweep()
  local alive = {}
  for i = 3, #ARGV do
    local ends = tonumber(call('ZSCORE', ACTIVE, ARGV[i]) or 0)
    alive[i - 2] = ends > clock and 1 or 0
    if ends > clock then
      local known = cfg.absolute_ttl_ms > 0 and inside(ARGV[i])
      call('ZADD', ACTIVE, slot_end(known and known.since, ends), ARGV[i])
    end
  end
  promote()
  return alive
end

-- ARGV 3 sid or lease  4 revoke (0/1)
function ops.release()
  sweep()
  local freed = vacate(ARGV[3], 'released')
  if ARGV[4] == '1' and (freed or cfg.unit == 'requests') then
    count('revoked')
    journal('revoke', ARGV[3])
  end
  promote()
  return freed and 1 or 0
end

-- ARGV 3 sid
function ops.leave()
  sweep()
  settle(ARGV[3], ARGV[3])
  local was = take_out(ARGV[3], 'left', 'revoke')
  promote()
  return was and 1 or 0
end

-- ARGV 3 sid. The true last check-in moves to the record, because the return window counts from it.
function ops.beacon()
  sweep()
  local seen = call('ZSCORE', SEEN, ARGV[3])
  local silent_from = cutoff() + BEACON_MS
  if seen and tonumber(seen) > silent_from then
    local v = record(ARGV[3])
    v.seen = math.max(v.seen, tonumber(seen))
    call('HSET', VISITOR, ARGV[3], pack(v))
    call('ZADD', SEEN, silent_from, ARGV[3])
  end
  promote()
  return 1
end

-- ARGV 3 sid
function ops.extend()
  local sid = ARGV[3]
  sweep()
  settle(sid, sid)
  local v = check_in(sid)
  promote()
  if not v then
    return call('ZSCORE', ACTIVE, sid) and active_place(sid) or place('none')
  end
  v = record(sid)
  local deadline = call('ZSCORE', GRANTED, sid)
  if not deadline then
    return waiting_place(sid, v, 0)
  end
  deadline = tell(sid, v, tonumber(deadline))
  if v.extensions < EXTENSIONS then
    v.extensions = v.extensions + 1
    deadline = deadline + cfg.grant_ttl_ms
    call('ZADD', GRANTED, deadline, sid)
    call('HSET', VISITOR, sid, pack(v))
  end
  return granted_place(v, deadline)
end

-- ARGV 3… sids that are inside already, whatever the room thinks. Adoption is no admission by the rate.
function ops.adopt()
  local fresh = 0
  sweep()
  for i = 3, #ARGV do
    local sid = ARGV[i]
    settle(sid, sid)
    local ends = call('ZSCORE', ACTIVE, sid)
    if ends then
      local known = inside(sid)
      call('ZADD', ACTIVE, slot_end(known and known.since, tonumber(ends)), sid)
    else
      local v = record(sid)
      if not v then
        v = { ticket = 0, rank = 0, joined = now, client = '' }
        count('joined')
      elseif call('ZREM', QUEUE, sid) == 1 then
        n.queue = n.queue - 1
        n.living = n.living - (tonumber(call('ZSCORE', SEEN, sid)) >= cutoff() and 1 or 0)
        call('ZREM', SEEN, sid)
      else
        n.parked = n.parked - call('ZREM', PARKED, sid)
        n.granted = n.granted - call('ZREM', GRANTED, sid)
      end
      call('HDEL', VISITOR, sid)
      if cfg.mode ~= 'off' and n.active + n.granted >= cfg.capacity then
        count('overshoot')
      end
      occupy(sid, sid, v)
      count('adopted')
      event('admitted', sid, v.ticket, 'adopted')
      fresh = fresh + 1
    end
  end
  return fresh
end

function ops.tick()
  sweep()
  promote()
  turn_flow()
  return {
    now, n.living, n.parked + n.queue - n.living, n.granted, n.active, tonumber(call('GET', SEQ) or 0),
    cfg.epoch, cfg.reset_ms, cfg.version, cfg.journal, more and 1 or 0, held() and 1 or 0,
  }
end

function ops.stats()
  return {
    now, n.living, n.parked + n.queue - n.living, n.granted, n.active, tonumber(call('GET', SEQ) or 0),
    cfg.epoch, cfg.reset_ms, cfg.version, cfg.journal, held() and 1 or 0, call('HGETALL', COUNTERS),
  }
end

-- ARGV 3 sid. Out of order, but never above capacity or rate.
function ops.promote()
  local sid = ARGV[3]
  sweep()
  local seen = call('ZSCORE', SEEN, sid)
  if call('ZSCORE', GRANTED, sid) then
    return 'granted'
  elseif not seen or tonumber(seen) < cutoff() then
    return 'unknown'
  elseif stopped() then
    return 'stopped'
  elseif slots_free() == 0 then
    return 'full'
  elseif rate_allows(1) == 0 then
    return 'rate'
  end
  grant({ sid }, 'operator')
  return 'granted'
end

local function take_out_all(kind, entry)
  sweep()
  local were = 0
  for i = 3, #ARGV do
    settle(ARGV[i], ARGV[i])
    were = were + (take_out(ARGV[i], kind, entry) and 1 or 0)
  end
  promote()
  return were
end

-- ARGV 3… sids
function ops.remove()
  return take_out_all('removed', 'revoke')
end

-- ARGV 3… sids
function ops.expel()
  return take_out_all('banned', 'expel')
end

-- A new epoch: whatever was issued until now is of an earlier one.
function ops.reset()
  cfg.reset_ms = math.max(now, cfg.reset_ms + 1)
  cfg.epoch = call('HINCRBY', CONFIG, 'epoch', 1)
  call('HSET', CONFIG, 'reset_ms', cfg.reset_ms)
  count('reset', n.queue + n.parked + n.granted)
  call('UNLINK', ACTIVE, GRANTED, QUEUE, SEEN, PARKED, LANE, VISITOR, INSIDE, SEQ, RATE)
  count_people()
  restart_flow()
  event('reset', '', 0, 'operator')
  journal('reset', '')
  return cfg.epoch
end

-- Everyone inside loses the slot; who waits is served from now on.
function ops.release_all()
  sweep()
  local were = n.active
  call('UNLINK', ACTIVE, INSIDE)
  n.active = 0
  count('released', were)
  event('release_all', '', 0, 'operator')
  journal('release_all', '')
  promote()
  return were
end

-- Configuration ----------------------------------------------------------------------------------------------

-- ARGV 3 version  4… field, value, …  Gives 1 when written. Runs without the room's clock and counts.
local function configure(lost)
  local known = load_config()
  read_clock()
  local version = tonumber(ARGV[3])
  if known and version <= cfg.version then
    return 0
  end
  call('HSET', CONFIG, 'version', version, unpack(ARGV, 4))
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
    return { 'hold', now, 0, 0, 0, 0, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
  elseif op == 'tick' then
    return { now, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 }
  elseif op == 'stats' then
    return { now, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, {} }
  elseif op == 'heartbeat' then
    local none = {}
    for i = 3, #ARGV do
      none[i - 2] = 0
    end
    return none
  elseif op == 'promote' then
    return 'stopped'
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
  return redis.error_reply('ERR room.lua: unknown operation ' .. op)
end
if op ~= 'stats' then
  save_clock()
end
count_people()
load_flow()
local reply = ops[op]()
save_counters()
return reply

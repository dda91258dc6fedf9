-- room.lua: the whole state machine of one waiting room, in one atomic call.
--
-- KEYS   1 active   2 granted  3 queue    4 seen      5 parked   6 lane     7 visitor   8 inside
--        9 seq     10 rate    11 config  12 counters 13 events  14 journal 15 lanewait 16 lanedue
--       17 lanewho 18 ranked  19 vip      20 served
--       21 the caller's own: `addr:<client>` for enter, `checks:<sid>` for poll, `paid:<payment>` for
--          advance, `revoked:<sid>` for a release that revokes; absent otherwise.
--       All under one hash tag; the meaning of each stands in queueing/keys.py.
-- ARGV   1 operation   2 test time in ms, or ''   3… the operation's own, see `ops` below.
-- RETURN enter, poll, extend: one flat place (see `place`). tick, stats, session, prolong: flat arrays.
--        heartbeat: the end of each slot in store time, 0 = gone. lane: for each 0 gone, 1 waits, 2 has the
--        slot. The others: one number or word.
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
--       capacity); nobody is let into the lane while it holds lane_size() slots.
--   I2  Each admission goes to the first of those in front, else to the lowest ticket among the living; in
--       order `rank` a higher rank may overtake as often as max_overtake allows. The event says why.
--   I3  joined = admitted + granted + left + missed + removed + banned + reset + waiting + parked.
--   I4  `visitor` has exactly the members of queue, parked and granted; `seen` exactly those of queue;
--       `ranked` has only members of queue, `inside` only holders in active or lane.
--   No key of a populated room has a TTL; only those of KEYS[21] expire.

local call = redis.call
local ACTIVE, GRANTED, QUEUE, SEEN, PARKED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local LANE, VISITOR, INSIDE, SEQ, RATE = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local CONFIG, COUNTERS, EVENTS, JOURNAL = KEYS[11], KEYS[12], KEYS[13], KEYS[14]
local LANEWAIT, LANEDUE, LANEWHO, RANKED, VIP = KEYS[15], KEYS[16], KEYS[17], KEYS[18], KEYS[19]
local SERVED, LIMIT = KEYS[20], KEYS[21] -- the last is the caller's own

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
local TAKE_UP_MS = 3000 -- a slot of the lane handed to who waits for it: taken up within this, or lost
local LANE_GRACE_MS = 2000 -- who waits for the lane asks more often than this beyond its wait
local LANE_STEP = 2 ^ 42 -- between two ranks in `lanewait`
local LEVEL = 2 ^ 40 -- between two levels in `ranked`; level 7 is the front
local ONE_REVOCATION_MS = 60000 -- a revocation that is said again within this counts no second time
local PAYMENT_KEPT_MS = 30 * 24 * 3600 * 1000
local SCHEMA = 2 -- of the configuration: 1 (never written) knew no lane, no leases, no ranks

local cfg = {} -- the room's configuration
local now, clock = 0, 0 -- store time, room time
local n = {} -- people: queue (with ghosts), living, parked, granted, active, ranked; lane, lane_waiting
local added = {} -- counters to add at the end of the call
local flow = {} -- grants, and their number at the beginning of this and of the previous window
local more = false -- a bound was hit
local returned = false -- the store was out of reach for an open room until just now

-- One function around all others, for speed alone: the server defines them anew in each call, and a name of an
-- enclosing function costs nothing to take in, while one of the same level is searched for among all that were
-- taken in before. It halves the cost of a call (docs/decisions/0010). Lua allows it 60 names from above.
local function room()

-- Reading and writing what the room is ------------------------------------------------------------

local FIELDS = {
  'version', 'clock', 'test_clock', 'epoch', 'reset_ms', 'journal', 'hold_until', 'flow', 'mode', 'unit',
  'capacity', 'rate', 'active_ttl_ms', 'absolute_ttl_ms', 'grant_ttl_ms', 'queue_ttl_ms',
  'return_window_ms', 'max_queue', 'entries_per_minute', 'polls_per_second', 'events_kept', 'on_outage',
  'lease_ttl_ms', 'priority_cap', 'lane_rank', 'priority_wait_ms', 'priority_forms', 'order', 'max_overtake',
  'share_guard', 'refresh_ms', 'overtake', 'schema',
}

local function load_config()
  local values = call('HMGET', CONFIG, unpack(FIELDS))
  for i = 1, #FIELDS do
    cfg[FIELDS[i]] = tonumber(values[i]) or values[i] or 0
  end
  if cfg.lane_rank == 0 then -- written by a version that knew no lane
    cfg.lane_rank, cfg.lease_ttl_ms = 7, cfg.active_ttl_ms
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
  n.ranked = n.queue > 0 and call('ZCARD', RANKED) or 0
  n.lane = call('ZCARD', LANE)
  n.lane_waiting = call('ZCARD', LANEWAIT)
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

-- Records: text, so that an operator can read them. What a later version added stands at the end, where an
-- earlier one takes it for a part of the client's address and keeps it -----------------------------------

-- `front`: the order of payment, 0 = not in front; `by`: who said so, p (paid) or o (operator).
local function pack(v)
  return string.format('%.0f,%d,%.0f,%d,%d,%d,%.0f,%s,%.0f,%s',
    v.ticket, v.rank, v.joined, v.lapses, v.told, v.extensions, v.seen, v.client, v.front, v.by)
end

local function unpack_record(text)
  local ticket, rank, joined, lapses, told, extensions, seen, client, rest =
    string.match(text, '^(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),([^,]*),?(.*)$')
  local front, by = string.match(rest, '^(%d+),(%a?)$')
  return {
    ticket = tonumber(ticket), rank = tonumber(rank), joined = tonumber(joined), lapses = tonumber(lapses),
    told = tonumber(told), extensions = tonumber(extensions), seen = tonumber(seen), client = client,
    front = tonumber(front or 0), by = by or '',
  }
end

local function record(sid)
  local text = call('HGET', VISITOR, sid)
  return text and unpack_record(text)
end

-- `extensions` of the absolute limit; `network` from which the pass was used last, and when.
local function pack_inside(v)
  return string.format('%.0f,%d,%.0f,%.0f,%s,%d,%s,%.0f',
    v.ticket, v.rank, v.joined, v.since, v.client, v.extensions, v.network, v.used)
end

local function inside(sid)
  local text = call('HGET', INSIDE, sid)
  if not text then
    return nil
  end
  local ticket, rank, joined, since, client, rest =
    string.match(text, '^(%d+),(%d+),(%d+),(%d+),([^,]*),?(.*)$')
  local extensions, network, used = string.match(rest, '^(%d+),([^,]*),(%d+)$')
  return { ticket = tonumber(ticket), rank = tonumber(rank), joined = tonumber(joined), since = tonumber(since),
    client = client, extensions = tonumber(extensions or 0), network = network or '', used = tonumber(used or 0) }
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

local function limit_of(v)
  return cfg.absolute_ttl_ms > 0 and v and v.since + cfg.absolute_ttl_ms * (1 + v.extensions)
end

-- The end of a slot that is used now: a session's by its record `v`, a lease's (which has none) sooner.
-- A pass never outlives its slot, so a slot never shrinks.
local function slot_end(v, old)
  local fresh = clock + (v and cfg.active_ttl_ms or cfg.lease_ttl_ms)
  return math.max(old or 0, math.min(fresh, limit_of(v) or fresh))
end

-- Where a holder has a slot, and until when; nil when nowhere. A slot of the lane that was handed on and not
-- taken up yet is only kept free for it.
local function slot_of(holder)
  local ends = call('ZSCORE', ACTIVE, holder)
  if ends then
    return ACTIVE, tonumber(ends)
  end
  ends = n.lane > 0 and call('ZSCORE', LANE, holder)
  if ends then
    return LANE, tonumber(ends)
  end
end

local function is_kept_free(holder)
  return n.lane > 0 and call('HEXISTS', LANEWHO, holder) == 1 and call('ZSCORE', LANE, holder)
end

-- The slot that somebody is in: not one that is kept free for it.
local function seat_of(holder)
  local key, ends = slot_of(holder)
  if key and not (key == LANE and is_kept_free(holder)) then
    return key, ends
  end
end

local function strike_off(holder)
  if n.lane_waiting > 0 and call('ZREM', LANEWAIT, holder) == 1 then
    call('ZREM', LANEDUE, holder)
    call('HDEL', LANEWHO, holder)
    n.lane_waiting = n.lane_waiting - 1
    return true
  end
end

-- Puts a slot under `holder`: the visitor's session, or a lease, which keeps no record. Gives its end.
local function occupy(key, holder, sid, v, network)
  local known
  if holder == sid then
    known = { ticket = v.ticket, rank = v.rank, joined = v.joined, since = clock, client = v.client,
      extensions = 0, network = '', used = 0 }
    if cfg.share_guard == 1 and network and network ~= '' then
      known.network, known.used = network, clock
    end
    call('HSET', INSIDE, sid, pack_inside(known))
  end
  local ends = slot_end(known)
  call('ZADD', key, ends, holder)
  strike_off(holder)
  if key == LANE then
    call('HDEL', LANEWHO, holder) -- a reset by an earlier version leaves it behind
    n.lane = n.lane + 1
  else
    n.active = n.active + 1
  end
  count('admitted')
  return ends
end

-- Frees a slot. Gives whether anybody was in it.
local function vacate(holder, kind, reason)
  if call('ZREM', ACTIVE, holder) == 1 then
    n.active = n.active - 1
  elseif n.lane > 0 and call('ZREM', LANE, holder) == 1 then
    n.lane = n.lane - 1
    if call('HDEL', LANEWHO, holder) == 1 then
      return false -- it was kept free for who has not come: nothing to undo
    end
  else
    return false
  end
  local v = inside(holder)
  if v then
    call('HDEL', INSIDE, holder)
  end
  count(kind)
  event(kind, holder, v and v.ticket or 0, reason or '')
  return true
end

-- The line: `queue` and `seen` have the same members; `ranked` those of them who do not stand by arrival.

-- Where somebody stands in `ranked`; nil by arrival.
local function level(v)
  if v.front > 0 then
    return v.front
  elseif cfg.order == 'rank' and v.rank > 0 then
    return (7 - v.rank) * LEVEL + v.ticket
  end
end

local function stand_by_rank(sid, v)
  local score = level(v)
  if score then
    call('ZADD', RANKED, score, sid)
    n.ranked = math.max(1, n.ranked) -- only whether there is anybody is asked
  elseif n.ranked > 0 then
    call('ZREM', RANKED, sid)
  end
end

local function stand(sid, v)
  call('ZADD', QUEUE, v.ticket, sid)
  call('ZADD', SEEN, clock, sid)
  n.queue, n.living = n.queue + 1, n.living + 1
  stand_by_rank(sid, v)
end

local function step_out(sids)
  call('ZREM', QUEUE, unpack(sids))
  call('ZREM', SEEN, unpack(sids))
  if n.ranked > 0 then
    call('ZREM', RANKED, unpack(sids))
  end
end

-- Takes somebody of the line, parked or granted from where it stands; its record is left to the caller.
local function withdraw(sid)
  local seen = call('ZSCORE', SEEN, sid)
  if seen then
    step_out({ sid })
    n.queue = n.queue - 1
    n.living = n.living - (tonumber(seen) >= cutoff() and 1 or 0)
  else
    n.parked = n.parked - call('ZREM', PARKED, sid)
    n.granted = n.granted - call('ZREM', GRANTED, sid)
  end
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
  step_out(sids)
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
  if left > 0 and n.lane > 0 then
    local slots = due(LANE, clock, left)
    for _, holder in ipairs(slots) do
      vacate(holder, 'expired')
    end
    left = left - #slots
  end
  if left > 0 and n.lane_waiting > 0 then
    local gone = due(LANEDUE, clock, left)
    for _, holder in ipairs(gone) do
      strike_off(holder)
    end
    left = left - #gone
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
  if left > 0 and cfg.unit == 'requests' then
    local gone = due(SERVED, clock, left)
    if #gone > 0 then
      call('ZREM', SERVED, unpack(gone))
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

-- Reserves slots for these living waiters, in this order; `reasons` by sid where it is not just their turn.
local function grant(sids, reasons)
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
    event('granted', sid, v.ticket, reasons and reasons[sid] or 'turn')
  end
  step_out(sids)
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

-- The first `most` living of `ranked` between two scores, in its order: at most a hundred are looked at.
local function living_ranked(from, upto, most)
  local sids = call('ZRANGEBYSCORE', RANKED, from, upto, 'LIMIT', 0, DIRECT)
  local living = {}
  if #sids > 0 then
    for i, at in ipairs(call('ZMSCORE', SEEN, unpack(sids))) do
      if not at then
        call('ZREM', RANKED, sids[i]) -- an earlier version of this script took it out of the line
      elseif #living < most and tonumber(at) >= cutoff() then
        living[#living + 1] = sids[i]
      end
    end
  end
  return living
end

local function front_people(most)
  return living_ranked('-inf', '(' .. string.format('%.0f', LEVEL), most)
end

local function ranked_people(most)
  return cfg.order == 'rank' and living_ranked(LEVEL, '+inf', most) or {}
end

local function records_of(sids)
  local known = {}
  if #sids > 0 then
    for i, text in ipairs(call('HMGET', VISITOR, unpack(sids))) do
      known[sids[i]] = unpack_record(text)
    end
  end
  return known
end

-- Plays the order through: those in front, then by arrival, whom a higher rank overtakes when the credit has
-- come to a whole admission. `serve` is called with each sid and the reason; it says when it is enough.
local function play(front, arrivals, ranked, known, serve)
  local served, a, r = {}, 1, 1
  for _, sid in ipairs(front) do
    served[sid] = true
    if serve(sid, known[sid].by == 'o' and 'operator' or 'paid') then
      return
    end
  end
  while true do
    while arrivals[a] and served[arrivals[a]] do
      a = a + 1
    end
    while ranked[r] and served[ranked[r]] do
      r = r + 1
    end
    local sid, reason = arrivals[a], 'turn'
    if not sid then
      return
    end
    if ranked[r] and known[ranked[r]].rank > known[sid].rank then
      cfg.overtake = cfg.overtake + cfg.max_overtake
      if cfg.overtake >= 100 then
        cfg.overtake = cfg.overtake - 100
        sid, reason = ranked[r], 'rank'
      end
    end
    served[sid] = true
    if serve(sid, reason) then
      return
    end
  end
end

-- The next `want` of a line in which not everybody stands by arrival.
local function grant_by_order(want)
  local front, arrivals, ranked = front_people(want), first_living(want), ranked_people(want)
  local known, sids, reasons, credit = records_of(front), {}, {}, cfg.overtake
  for _, some in ipairs(cfg.order == 'rank' and { arrivals, ranked } or {}) do
    for sid, v in pairs(records_of(some)) do
      known[sid] = v
    end
  end
  play(front, arrivals, ranked, known, function(sid, reason)
    sids[#sids + 1], reasons[sid] = sid, reason
    return #sids == want
  end)
  if cfg.overtake ~= credit then
    call('HSET', CONFIG, 'overtake', cfg.overtake)
  end
  grant(sids, reasons)
  return sids
end

local function promote()
  local want = rate_allows(math.min(slots_free(), n.living, PROMOTE))
  if want <= 0 then
    return
  end
  local sids
  if n.ranked == 0 then
    sids = first_living(want)
    grant(sids)
  else
    sids = grant_by_order(want)
  end
  more = more or (#sids == PROMOTE and n.living > 0 and slots_free() > 0 and rate_allows(1) == 1)
end

-- The lane: slots beside the room's, for ranks and for forms -----------------------------------------------

local function lane_size()
  if cfg.capacity == 0 then
    return 0 -- the operator holds the room
  elseif cfg.priority_cap > 0 then
    return cfg.priority_cap
  end
  return math.max(1, math.floor(cfg.capacity / 4))
end

local function lane_serves(is_form)
  return not stopped() and cfg.capacity > 0 and (cfg.mode ~= 'closed' or is_form)
end

-- Gives a slot of the lane. A session leaves the line for it; a lease leaves its visitor's place alone.
local function enter_lane(w)
  local v = w.holder == w.sid and record(w.sid)
  if v then
    withdraw(w.sid)
    call('HDEL', VISITOR, w.sid)
    v.rank = w.rank
  else
    count('joined')
    v = { ticket = 0, rank = w.rank, joined = now, client = w.client }
  end
  local ends = occupy(LANE, w.holder, w.sid, v, w.network)
  count('lane')
  if w.form then
    count('forms')
  end
  event('admitted', w.holder, v.ticket, w.form and 'form' or 'lane')
  return ends
end

local function lane_waiter(holder)
  local rank, form, sid, client, network =
    string.match(call('HGET', LANEWHO, holder), '^(%d),(%d),([^,]*),([^,]*),(.*)$')
  return { holder = holder, rank = tonumber(rank), form = form == '1', sid = sid, client = client,
    network = network }
end

-- Registers who waits for the lane, or its newer rank; the order of coming stays.
local function wait_for_lane(w)
  local score = call('ZSCORE', LANEWAIT, w.holder)
  local came = score and tonumber(score) % LANE_STEP or call('HINCRBY', CONFIG, 'arrivals', 1)
  if not score then
    n.lane_waiting = n.lane_waiting + 1
  end
  call('ZADD', LANEWAIT, (6 - w.rank) * LANE_STEP + came, w.holder)
  call('ZADD', LANEDUE, clock + cfg.priority_wait_ms + LANE_GRACE_MS, w.holder)
  call('HSET', LANEWHO, w.holder,
    string.format('%d,%d,%s,%s,%s', w.rank, w.form and 1 or 0, w.sid, w.client, w.network))
end

-- Keeps free slots for who waits for them, at most as many as grants in a call. Only who takes it up is
-- admitted: a visitor whose gateway died meanwhile still has its place in the line.
local function hand_on()
  local free, given = lane_size() - n.lane, 0
  if n.lane_waiting == 0 or free <= 0 or stopped() then
    return
  end
  local most = math.min(free, PROMOTE)
  for _, holder in ipairs(call('ZRANGE', LANEWAIT, 0, (cfg.mode == 'closed' and DIRECT or most) - 1)) do
    if given < most and (cfg.mode ~= 'closed' or lane_waiter(holder).form) then
      given = given + 1
      n.lane, n.lane_waiting = n.lane + 1, n.lane_waiting - 1
      call('ZREM', LANEWAIT, holder)
      call('ZREM', LANEDUE, holder)
      call('ZADD', LANE, clock + TAKE_UP_MS, holder)
    end
  end
  more = more or (given == PROMOTE and free > given and n.lane_waiting > 0)
end

-- Lengthens a slot to its whole life; takes it up when it was kept free, from the network that is told now,
-- else from the one told when it began to wait. Gives its end.
local function lengthen(key, holder, ends, network)
  if key == LANE and is_kept_free(holder) then
    local w = lane_waiter(holder)
    w.network = network and network ~= '' and network or w.network
    vacate(holder)
    return enter_lane(w)
  end
  ends = slot_end(inside(holder), ends)
  call('ZADD', key, ends, holder)
  return ends
end

-- The caller -------------------------------------------------------------------------------------------

-- What fell due for this very visitor counts even when the bounded sweep has not come to it.
local function settle(holder, sid)
  local _, ends = slot_of(holder)
  if ends and ends <= clock then
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

-- Whether somebody of the line has been silent for so long that the place is gone; then it goes.
local function is_overdue(sid, v, seen)
  if seen < cutoff() and math.max(seen, v.seen) + cfg.return_window_ms <= clock then
    park({ sid }, { seen })
    return true
  end
end

-- Applies the check-in of who is in the line, parked or granted. Gives the record, or nil for a stranger.
local function check_in(sid, rank)
  local v = record(sid)
  if not v then
    return nil
  end
  local ranked_anew = rank and rank ~= v.rank
  v.rank = rank or v.rank
  local seen = call('ZSCORE', SEEN, sid)
  if seen then
    seen = tonumber(seen)
    if is_overdue(sid, v, seen) then
      return nil
    elseif seen < cutoff() then
      n.living = n.living + 1
      count('returned')
      event('returned', sid, v.ticket, 'unswept')
    end
    call('ZADD', SEEN, clock, sid)
    stand_by_rank(sid, v)
  elseif call('ZREM', PARKED, sid) == 1 then
    n.parked = n.parked - 1
    stand(sid, v)
    count('returned')
    event('returned', sid, v.ticket, 'parked')
  else
    v.seen, ranked_anew = clock, true
  end
  if ranked_anew then
    call('HSET', VISITOR, sid, pack(v))
  end
  return v
end

-- Living people with a lower ticket. Exact while few are silent or few are living; else the least that is
-- certain not to be too low, kept at what was shown while that may still be the truth.
local function people_before(sid, ticket, shown)
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

-- How many are served before somebody whom nobody in front concerns: played through exactly.
local function played_before(sid, front)
  local arrivals = n.queue == n.living and call('ZRANGE', QUEUE, 0, -1) or first_of_few(n.living)
  local ranked, known, before, credit = ranked_people(DIRECT), records_of(arrivals), 0, cfg.overtake
  play(front, arrivals, ranked, known, function(other)
    before = before + 1
    return other == sid
  end)
  cfg.overtake = credit
  return before - 1
end

local function ranked_between(from, upto)
  return call('ZCOUNT', RANKED, string.format('%.0f', from), '(' .. string.format('%.0f', upto))
end

-- The same of a long line, as near as counting comes to it, and never too low: reached by arrival or by rank,
-- whichever is sooner. `before` = those with a lower ticket, without those in front. With the credit c and the
-- share m, the i-th overtaking from now is the k-th contested admission, k = ceil((100 i - c) / m); so
-- k - i of the line by arrival go before it, and floor((m j + c) / (100 - m)) overtake j of the line.
local function estimated_before(v, before)
  local share, own = cfg.max_overtake, (7 - v.rank) * LEVEL
  local behind, higher = 0, ranked_between(LEVEL, v.rank > 0 and own or 7 * LEVEL)
  for rank = v.rank + 1, 6 do
    behind = behind + ranked_between((7 - rank) * LEVEL + v.ticket, (8 - rank) * LEVEL)
  end
  local by_arrival = before + math.min(behind, math.floor((share * before + cfg.overtake) / (100 - share)))
  if v.rank == 0 or share == 0 then
    return by_arrival
  end
  local same = ranked_between(own, own + v.ticket)
  local passed = math.max(0, before - (higher - behind) - same)
  local by_rank = higher + same
  local turns = math.ceil((100 * (by_rank + 1) - cfg.overtake) / share) - (by_rank + 1)
  return math.min(by_arrival, by_rank + math.min(passed, turns))
end

-- Living people who are served before: how many, how many of them stand in front, and why it may have risen.
local function people_ahead(sid, v, shown)
  if n.ranked == 0 then
    return people_before(sid, v.ticket, shown), 0, 'returned'
  end
  local front, before, newest, why = front_people(DIRECT), 0, nil, 'returned'
  local in_front = ranked_between(0, LEVEL)
  if in_front <= DIRECT then -- else not all were looked at: no fewer than there are
    in_front = #front
  end
  local tickets = #front > 0 and call('ZMSCORE', QUEUE, unpack(front)) or {}
  for at, other in ipairs(front) do
    if other == sid then
      return at - 1, at - 1, 'returned' -- nobody pays a way past who has paid
    elseif tonumber(tickets[at]) < v.ticket then
      before = before + 1
    else
      newest = other
    end
  end
  if v.front > 0 then -- more than a hundred are in front
    local rank = call('ZRANK', RANKED, sid)
    return rank, rank, 'returned'
  end
  if newest and shown > 0 then
    why = record(newest).by == 'o' and 'operator' or 'paid'
  end
  if cfg.order ~= 'rank' then
    return math.min(n.living - 1, people_before(sid, v.ticket, shown) - before + in_front), in_front, why
  end
  local overtaken = false
  for rank = v.rank + 1, 6 do
    overtaken = overtaken or ranked_between((7 - rank) * LEVEL + v.ticket, (8 - rank) * LEVEL) > 0
  end
  if not newest and overtaken then
    why = 'rank'
  end
  if n.living <= DIRECT then
    return played_before(sid, front), in_front, why
  end
  local others = estimated_before(v, people_before(sid, v.ticket, shown) - before)
  return math.min(n.living - 1, in_front + others), in_front, why
end

local function vip_until(sid)
  local till = tonumber(call('ZSCORE', VIP, sid) or 0)
  return till > clock and till or nil
end

-- The flat reply; times leave here as store time. `p` holds what differs from nothing.
local function place(state, p)
  p = p or {}
  return {
    state, now, p.ticket or 0, p.ahead or 0, p.ends and math.floor(now + p.ends - clock) or 0, p.joined or 0,
    p.reason or '', cfg.reset_ms, cfg.epoch, flow.total - flow.n1, clock - flow.t1, math.ceil(p.retry or 0),
    p.extensions or 0, p.new and 1 or 0, n.living, n.parked + n.queue - n.living, n.granted, n.active,
    tonumber(call('GET', SEQ) or 0), n.lane, n.lane_waiting, p.rank or 0, p.paid and 1 or 0, p.front or 0,
    p.vip and math.floor(now + p.vip - clock) or 0, p.by_lease and 1 or 0,
  }
end

local function waiting_place(sid, v, shown, state)
  local ahead, front, why = people_ahead(sid, v, shown)
  if not state then
    state = held() and 'hold' or stopped() and 'paused' or 'waiting'
  end
  return place(state, {
    ticket = v.ticket, joined = v.joined, ahead = ahead, front = front, new = v.new, rank = v.rank,
    paid = v.front > 0, vip = vip_until(sid), reason = shown > 0 and ahead + 1 > shown and why or '',
    retry = v.retry,
  })
end

local function active_place(holder, ends, is_new)
  local v = inside(holder)
  if not v then
    return place('active', { ends = ends, by_lease = true, joined = is_new and now, new = is_new })
  end
  return place('active', { ticket = v.ticket, joined = v.joined, rank = v.rank, ends = ends, new = is_new,
    vip = vip_until(holder) })
end

local function granted_place(sid, v, ends)
  return place('granted', { ticket = v.ticket, joined = v.joined, ends = ends, extensions = v.extensions,
    rank = v.rank, paid = v.front > 0, vip = vip_until(sid) })
end

-- A ticket without a place is a missed one, unless it was served: where requests are counted, the answer to
-- that page may never have come, and so neither the cookie without the ticket.
local function stranger_place(sid, iat, ticket)
  if held() then
    return place('hold')
  elseif iat <= cfg.reset_ms then
    return place('reset')
  elseif ticket > 0 and tonumber(call('ZSCORE', SERVED, sid) or 0) <= clock then
    return place('missed')
  end
  return nil
end

local function queue_is_full()
  return cfg.max_queue > 0
    and (n.living >= cfg.max_queue or n.queue + n.parked >= 2 * cfg.max_queue)
end

-- When this client may take a new place; 0 = now.
local function wait_for_entry(c)
  local limited = not c.exempt and cfg.entries_per_minute > 0
  return limited and wait_for(LIMIT, cfg.entries_per_minute, 60000) or 0
end

local function note_entry(c)
  if not c.exempt and cfg.entries_per_minute > 0 then
    note(LIMIT, cfg.entries_per_minute, 60000)
  end
  count('joined')
end

-- Somebody without a place goes inside at once when nobody living is ahead and slot and rate allow.
local function enter_directly(c)
  if cfg.mode == 'closed' or cfg.mode == 'reject' or n.living > 0 or slots_free() == 0
    or rate_allows(1) == 0 or wait_for_entry(c) > 0 then
    return nil
  end
  note_entry(c)
  local v = { ticket = 0, rank = c.rank, joined = now, client = c.client }
  local ends = occupy(ACTIVE, c.holder, c.sid, v, c.network)
  note_admissions(1)
  count('direct')
  event('admitted', c.holder, 0, 'direct')
  return active_place(c.holder, ends, true)
end

-- A ticket for somebody without a place.
local function join_line(c)
  if cfg.mode == 'closed' then
    return place('closed')
  elseif cfg.mode == 'reject' then
    return place('rejected')
  end
  local retry = wait_for_entry(c)
  if retry > 0 then
    return place('limited', { retry = retry })
  elseif queue_is_full() then
    return place('full')
  end
  note_entry(c)
  if n.living == 0 then
    restart_flow()
  end
  local v = { ticket = call('INCR', SEQ), rank = c.rank, joined = now, lapses = 0, told = 0, extensions = 0,
    seen = 0, client = c.client, front = 0, by = '', new = true }
  if vip_until(c.sid) then
    v.front, v.by = call('HINCRBY', CONFIG, 'payments', 1), 'p'
    count('advanced')
  end
  call('HSET', VISITOR, c.sid, pack(v))
  stand(c.sid, v)
  event('joined', c.sid, v.ticket, v.front > 0 and 'vip' or '')
  return waiting_place(c.sid, v, 0)
end

-- A slot of the lane, at once or after waiting for it (then state `lane`); nil for who may not use it now.
local function enter_by_lane(c, v)
  local is_ranked, is_form = c.rank >= cfg.lane_rank, c.form and cfg.priority_forms == 1
  local by_session = is_ranked and cfg.unit ~= 'requests'
  local w = { holder = by_session and c.sid or c.lease, sid = c.sid, client = c.client, rank = c.rank,
    form = c.form, network = c.network }
  if not (is_ranked or is_form) or w.holder == '' then
    return nil
  end
  if not c.may_wait then
    strike_off(w.holder)
  end
  if not lane_serves(c.form) then
    return nil
  elseif n.lane < lane_size() and n.lane_waiting == 0 then
    return active_place(w.holder, enter_lane(w))
  elseif not c.may_wait then
    return nil
  end
  wait_for_lane(w)
  return v and waiting_place(c.sid, v, c.shown, 'lane') or place('lane')
end

-- Strikes the requests of these visitors off the lane's waiters, of those who are next to be served.
local function strike_off_all(sids)
  if n.lane_waiting == 0 then
    return
  end
  local gone = {}
  for _, sid in ipairs(sids) do
    gone[sid] = true
  end
  for _, holder in ipairs(call('ZRANGE', LANEWAIT, 0, DIRECT - 1)) do
    if gone[lane_waiter(holder).sid] then
      strike_off(holder)
    end
  end
end

-- Takes a visitor out of the room, wherever it stands. Gives whether it was there.
local function take_out(sid, kind, entry)
  local v = record(sid)
  if v then
    withdraw(sid)
    forget(sid, v.ticket, kind)
  end
  local had_slot = vacate(sid, 'released', kind)
  if had_slot or (cfg.unit == 'requests' and entry == 'expel') then
    journal(entry, sid)
  end
  return (v or had_slot) and true or false
end

-- Whether a session is in use on another network; notes the network that it is used from (WR-35).
local function is_shared(c, v)
  if cfg.share_guard ~= 1 or not v or c.network == '' then
    return false
  elseif v.network ~= '' and v.network ~= c.network and clock - v.used < 2 * cfg.refresh_ms then
    return true
  end
  v.network, v.used = c.network, clock
  call('HSET', INSIDE, c.sid, pack_inside(v))
  return false
end

-- Operations ---------------------------------------------------------------------------------------------

local ops = {}

local function still_inside(c, holder, key, ends)
  if is_shared(c, inside(holder)) then
    promote()
    return place('shared')
  end
  ends = lengthen(key, holder, ends, c.network)
  promote()
  return active_place(holder, ends)
end

local function claim(c, v)
  call('ZREM', GRANTED, c.sid)
  n.granted = n.granted - 1
  call('HDEL', VISITOR, c.sid)
  local ends = occupy(ACTIVE, c.holder, c.sid, v, c.network)
  event('admitted', c.holder, v.ticket, 'claim')
  if c.holder ~= c.sid then
    call('ZADD', SERVED, clock + cfg.return_window_ms, c.sid)
  end
  return place('active', { ticket = v.ticket, joined = v.joined, rank = v.rank, paid = v.front > 0,
    vip = vip_until(c.sid), ends = ends, by_lease = c.holder ~= c.sid })
end

-- ARGV 3 sid  4 client  5 iat ms  6 ticket  7 shown  8 lease  9 exempt (0/1)  10 rank  11 form (0/1)
--      12 may wait for the lane (0/1)  13 network
function ops.enter()
  local c = { sid = ARGV[3], client = ARGV[4], shown = tonumber(ARGV[7]), lease = ARGV[8],
    exempt = ARGV[9] == '1', rank = tonumber(ARGV[10]), form = ARGV[11] == '1', may_wait = ARGV[12] == '1',
    network = ARGV[13], holder = ARGV[3] }
  if c.lease ~= '' and cfg.unit == 'requests' then
    c.holder = c.lease
  end
  sweep()
  settle(c.holder, c.sid)
  hand_on()
  local key, ends = slot_of(c.holder)
  if key then
    return still_inside(c, c.holder, key, ends)
  end
  if c.lease ~= '' and c.lease ~= c.holder then
    key, ends = slot_of(c.lease)
  end
  if key and ends > clock then
    return still_inside(c, c.lease, key, ends)
  end
  local v = check_in(c.sid, c.rank)
  promote()
  if not v then
    local answer = stranger_place(c.sid, tonumber(ARGV[5]), tonumber(ARGV[6])) or enter_directly(c)
    if answer then
      return answer
    end
  elseif call('ZSCORE', GRANTED, c.sid) then
    return claim(c, v)
  end
  local answer = enter_by_lane(c, v)
  if answer then
    return answer
  elseif c.form then
    count('unsent')
    return v and waiting_place(c.sid, v, c.shown, 'unsent') or place('unsent')
  end
  return v and waiting_place(c.sid, v, c.shown) or join_line(c)
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
  hand_on()
  local key, ends = seat_of(sid)
  if key then
    promote()
    return active_place(sid, ends)
  end
  local v = check_in(sid)
  promote()
  if not v then
    return stranger_place(sid, tonumber(ARGV[4]), tonumber(ARGV[5])) or place('none')
  end
  v = record(sid)
  v.retry = wait_for(LIMIT, cfg.polls_per_second, 1000)
  if v.retry == 0 then
    note(LIMIT, cfg.polls_per_second, 1000)
  end
  local deadline = call('ZSCORE', GRANTED, sid)
  if deadline and v.retry > 0 then
    return place('limited', { ticket = v.ticket, joined = v.joined, retry = v.retry, rank = v.rank,
      paid = v.front > 0, vip = vip_until(sid) })
  elseif deadline then
    return granted_place(sid, v, tell(sid, v, tonumber(deadline)))
  end
  return waiting_place(sid, v, shown, v.retry > 0 and 'limited' or nil)
end

-- ARGV 3… sids or leases
function ops.heartbeat()
  sweep()
  hand_on()
  local ends = {}
  for i = 3, #ARGV do
    local key, upto = slot_of(ARGV[i])
    if key and upto > clock then
      ends[i - 2] = math.floor(now + lengthen(key, ARGV[i], upto) - clock)
    else
      ends[i - 2] = 0
    end
  end
  promote()
  return ends
end

-- ARGV 3… holders that wait for the lane
function ops.lane()
  sweep()
  hand_on()
  local news = {}
  for i = 3, #ARGV do
    local holder = ARGV[i]
    local key, ends = slot_of(holder)
    local due_at = not key and n.lane_waiting > 0 and call('ZSCORE', LANEDUE, holder)
    if key and ends > clock then
      lengthen(key, holder, ends)
      news[i - 2] = 2
    elseif due_at and tonumber(due_at) > clock then
      call('ZADD', LANEDUE, clock + cfg.priority_wait_ms + LANE_GRACE_MS, holder)
      news[i - 2] = 1
    else
      news[i - 2] = 0
    end
  end
  promote()
  return news
end

-- Whether nobody has just revoked this visitor, by whichever gateway.
local function is_first_revocation()
  local last = call('GET', LIMIT)
  call('SET', LIMIT, clock)
  if cfg.test_clock ~= 1 then
    call('PEXPIRE', LIMIT, ONE_REVOCATION_MS)
  end
  return not last or tonumber(last) + ONE_REVOCATION_MS <= clock
end

-- ARGV 3 sid or lease  4 revoke (0/1)
function ops.release()
  sweep()
  strike_off(ARGV[3])
  local freed = vacate(ARGV[3], 'released')
  if ARGV[4] == '1' and (freed or cfg.unit == 'requests') then
    local is_first = is_first_revocation()
    if freed or is_first then
      count('revoked')
    end
    journal('revoke', ARGV[3]) -- again too: a pass may have been signed meanwhile
    strike_off_all({ ARGV[3] })
  end
  hand_on()
  promote()
  return freed and 1 or 0
end

-- ARGV 3 sid
function ops.leave()
  sweep()
  settle(ARGV[3], ARGV[3])
  local was = take_out(ARGV[3], 'left', 'revoke')
  strike_off_all({ ARGV[3] })
  hand_on()
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
  hand_on()
  promote()
  return 1
end

-- ARGV 3 sid
function ops.extend()
  local sid = ARGV[3]
  sweep()
  settle(sid, sid)
  hand_on()
  local v = check_in(sid)
  promote()
  if not v then
    local key, ends = seat_of(sid)
    return key and active_place(sid, ends) or place('none')
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
  return granted_place(sid, v, deadline)
end

-- ARGV 3… sids that are inside already, whatever the room thinks. Adoption is no admission by the rate.
function ops.adopt()
  local fresh = 0
  sweep()
  hand_on()
  for i = 3, #ARGV do
    local sid = ARGV[i]
    settle(sid, sid)
    local key, ends = slot_of(sid)
    if key then
      lengthen(key, sid, ends)
    else
      local v = record(sid)
      if v then
        withdraw(sid)
        call('HDEL', VISITOR, sid)
      else
        v = { ticket = 0, rank = 0, joined = now, client = '' }
        count('joined')
      end
      if cfg.mode ~= 'off' and n.active + n.granted >= cfg.capacity then
        count('overshoot')
      end
      occupy(ACTIVE, sid, sid, v)
      count('adopted')
      event('admitted', sid, v.ticket, 'adopted')
      fresh = fresh + 1
    end
  end
  return fresh
end

function ops.tick()
  sweep()
  hand_on()
  promote()
  turn_flow()
  return {
    now, n.living, n.parked + n.queue - n.living, n.granted, n.active, tonumber(call('GET', SEQ) or 0),
    cfg.epoch, cfg.reset_ms, cfg.version, cfg.journal, more and 1 or 0, held() and 1 or 0, n.lane,
    n.lane_waiting,
  }
end

function ops.stats()
  return {
    now, n.living, n.parked + n.queue - n.living, n.granted, n.active, tonumber(call('GET', SEQ) or 0),
    cfg.epoch, cfg.reset_ms, cfg.version, cfg.journal, held() and 1 or 0, call('HGETALL', COUNTERS),
    n.lane, n.lane_waiting,
  }
end

-- ARGV 3 sid. Out of order, but never above capacity or rate.
function ops.promote()
  local sid = ARGV[3]
  sweep()
  hand_on()
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
  grant({ sid }, { [sid] = 'operator' })
  return 'granted'
end

-- Moves somebody who waits or is parked to the front, behind those who are there.
local function advance(sid, by)
  local v = record(sid)
  local seen = v and call('ZSCORE', SEEN, sid)
  if seat_of(sid) then
    return 'inside'
  elseif not v or (seen and is_overdue(sid, v, tonumber(seen))) then
    return 'unknown'
  elseif call('ZSCORE', GRANTED, sid) then
    return 'granted'
  end
  if v.front == 0 then
    v.front, v.by = call('HINCRBY', CONFIG, 'payments', 1), by == 'operator' and 'o' or 'p'
    call('HSET', VISITOR, sid, pack(v))
    if seen then
      stand_by_rank(sid, v)
    end
  end
  count('advanced')
  event('advanced', sid, v.ticket, by)
  return 'moved'
end

-- ARGV 3 sid  4 reason (paid, operator)  5 payment or ''  6 ms for which new places go to the front too
function ops.advance()
  local sid, payment, vip_ms = ARGV[3], ARGV[5], tonumber(ARGV[6])
  sweep()
  settle(sid, sid)
  hand_on()
  if payment ~= '' and call('EXISTS', LIMIT) == 1 then
    return 'already'
  end
  local became = advance(sid, ARGV[4])
  if became ~= 'unknown' and payment ~= '' then
    call('SET', LIMIT, became)
    if cfg.test_clock ~= 1 then
      call('PEXPIRE', LIMIT, PAYMENT_KEPT_MS)
    end
  end
  if became ~= 'unknown' and vip_ms > 0 then
    local over = due(VIP, clock, SWEEP)
    if #over > 0 then
      call('ZREM', VIP, unpack(over))
    end
    call('ZADD', VIP, 'GT', clock + vip_ms, sid)
  end
  promote()
  return became
end

-- How long a session still lasts: now, its end, the end of its longest stay, how often that was lengthened.
local function session_of(sid)
  local v, _, ends = inside(sid), slot_of(sid)
  if not v or not ends or ends <= clock then
    return { now, 0, 0, 0 }
  end
  local limit = limit_of(v)
  return { now, math.floor(now + ends - clock), limit and math.floor(now + limit - clock) or 0, v.extensions }
end

-- ARGV 3 sid
function ops.session()
  sweep()
  settle(ARGV[3], ARGV[3])
  hand_on()
  promote()
  return session_of(ARGV[3])
end

-- ARGV 3 sid. The longest stay starts again, ten times at most.
function ops.prolong()
  local sid = ARGV[3]
  sweep()
  settle(sid, sid)
  hand_on()
  local v, key, ends = inside(sid), slot_of(sid)
  if v and key and cfg.absolute_ttl_ms > 0 and v.extensions < EXTENSIONS then
    v.extensions = v.extensions + 1
    call('HSET', INSIDE, sid, pack_inside(v))
    lengthen(key, sid, ends)
  end
  promote()
  return session_of(sid)
end

local function take_out_all(kind, entry)
  sweep()
  local were = 0
  for i = 3, #ARGV do
    settle(ARGV[i], ARGV[i])
    were = were + (take_out(ARGV[i], kind, entry) and 1 or 0)
  end
  strike_off_all({ unpack(ARGV, 3) })
  hand_on()
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
  call('UNLINK', ACTIVE, GRANTED, QUEUE, SEEN, PARKED, LANE, VISITOR, INSIDE, SEQ, RATE, LANEWAIT, LANEDUE,
    LANEWHO, RANKED, SERVED)
  call('HDEL', CONFIG, 'overtake')
  count_people()
  restart_flow()
  event('reset', '', 0, 'operator')
  journal('reset', '')
  return cfg.epoch
end

-- Everyone inside loses the slot; who waits is served from now on.
function ops.release_all()
  sweep()
  local kept_free = call('HLEN', LANEWHO) - n.lane_waiting
  local were = n.active + n.lane - kept_free
  call('UNLINK', ACTIVE, INSIDE, LANE, LANEWAIT, LANEDUE, LANEWHO)
  n.active, n.lane, n.lane_waiting = 0, 0, 0
  count('released', were)
  event('release_all', '', 0, 'operator')
  journal('release_all', '')
  promote()
  return were
end

-- Configuration ----------------------------------------------------------------------------------------------

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

end

return room()

-- The script of a room: the whole state machine of one waiting room, in one atomic call. It is all files of this
-- folder, joined in the order of their names (queueing/store.py): what a file uses stands in an earlier one.
-- This one holds the contract, the keys, and what the room is: its configuration, clock, counts, events.
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
-- taken in before. It halves the cost of a call (docs/decisions/0010). Lua allows it 60 names from above, and 200 of
-- its own. The last file ends and calls it.
local function room()

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

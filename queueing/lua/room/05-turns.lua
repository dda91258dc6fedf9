-- Whose turn it is: how many may be let in now, who they are (I2), and their grants.

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

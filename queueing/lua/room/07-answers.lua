-- What a visitor is told: how many are served before it, why that rose, and the flat reply.

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

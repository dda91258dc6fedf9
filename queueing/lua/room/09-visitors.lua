-- Operations that gateways ask for on behalf of visitors and of their requests. Each sweeps, settles what fell due
-- for the caller, hands on slots of the lane, applies the check-in, promotes, and answers.

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

-- Sends one credential after the other and checks every answer, inside wrk.
--   LOAD_RESULT_FILE=… wrk … -s wrk-device-auth.lua URL -- ANSWERS_FILE
-- ANSWERS_FILE: one line per credential: credential, device, user, body, separated by tabs.
--
-- wrk does not tell a script which connection an answer belongs to. So each answer must be one of
-- the expected bodies, its headers must be that body's, and at the end no answer may have come more
-- often than its request was sent. That misses only two answers exchanged at the same moment; the
-- run's checks before and after, which ask with each credential on its own, would show it.

local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

function init(args)
  requests, bodyOf, expected = {}, {}, {}
  sent, received = {}, {}
  for line in io.lines(args[1]) do
    local credential, device, user, body = line:match('^([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$')
    requests[#requests + 1] = wrk.format('GET', nil, { Authorization = 'Bearer ' .. credential })
    bodyOf[#bodyOf + 1] = body
    expected[body] = { device = device, user = user }
    sent[body], received[body] = 0, 0
  end
  nextRequest = 0
  answered, wrong, firstWrong = 0, 0, ''
end

function request()
  nextRequest = nextRequest % #requests + 1
  local body = bodyOf[nextRequest]
  sent[body] = sent[body] + 1
  return requests[nextRequest]
end

function response(status, headers, body)
  answered = answered + 1
  local right = expected[body]
  if status == 200 and right ~= nil and headers['x-halo-device'] == right.device
      and headers['x-halo-user'] == right.user then
    received[body] = received[body] + 1
    return
  end
  wrong = wrong + 1
  if firstWrong == '' then
    firstWrong = 'status ' .. status .. ', device ' .. tostring(headers['x-halo-device'])
        .. ', body ' .. tostring(body)
  end
end

-- Lines for the generator: totals, the first wrong answer, then each latency and how often.
function done(summary, latency)
  local total, bad, first = 0, 0, ''
  for _, thread in ipairs(threads) do
    total = total + thread:get('answered')
    bad = bad + thread:get('wrong')
    if first == '' then first = thread:get('firstWrong') end
    local got = thread:get('received')
    for body, count in pairs(thread:get('sent')) do
      if got[body] > count then
        bad = bad + got[body] - count
        if first == '' then first = 'more answers than requests: ' .. body end
      end
    end
  end
  local errors = summary.errors
  local out = assert(io.open(os.getenv('LOAD_RESULT_FILE'), 'w'))
  out:write(string.format('totals %d %d %d %d %d\n', total, summary.duration,
    errors.connect + errors.read + errors.write + errors.timeout, bad, latency.max))
  out:write('wrong ', (first:gsub('%s+', ' ')), '\n')
  for index = 1, #latency do
    local microseconds, count = latency(index)
    out:write(string.format('%d %d\n', microseconds, count))
  end
  out:close()
end

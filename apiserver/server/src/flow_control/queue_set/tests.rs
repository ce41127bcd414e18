//! Properties of fair queuing, on simulated clients: upstream's scenarios (`queueset_test.go`) as data, and random ones.

use super::*;
use crate::flow_control::shuffle_sharding::Dealer;
use crate::flow_control::work_estimate::WorkEstimate;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

fn queued(queues: usize, hand: usize, queue_length_limit: usize) -> Queuing {
    Queuing::Queue {
        queues,
        dealer: Dealer::new(queues, hand).unwrap(),
        queue_length_limit,
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn arrival(estimate: WorkEstimate, hash: u64) -> Arrival {
    Arrival {
        estimate,
        hash,
        own: false,
    }
}

fn one_seat(hash: u64) -> Arrival {
    arrival(WorkEstimate::seats(1), hash)
}

/// Threads of one flow, each of which sends a request, waits for its end and thinks for a while.
#[derive(Clone, Copy)]
struct Client {
    hash: u64,
    threads: u64,
    estimate: WorkEstimate,
    execution: Duration,
    think: Duration,
    begins: Duration,
}

fn client(hash: u64, threads: u64, execution: u64, think: u64) -> Client {
    Client {
        hash,
        threads,
        estimate: WorkEstimate::seats(1),
        execution: millis(execution),
        think: millis(think),
        begins: Duration::ZERO,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Finish(RequestId),
    Release(RequestId),
    Arrive(usize),
}

/// The result of a simulation.
#[derive(Debug, Default)]
struct Outcome {
    /// Seat-seconds by client, from the moment that all have begun.
    served: BTreeMap<usize, f64>,
    rejected: usize,
}

/// Runs clients for so long, and checks what always holds.
fn simulate(queuing: Queuing, limit: usize, clients: &[Client], lasts: Duration) -> Outcome {
    let mut set: QueueSet<usize> = QueueSet::new(queuing, limit, Duration::ZERO);
    let mut events = BinaryHeap::new();
    for (at, client) in clients.iter().enumerate() {
        events.extend((0..client.threads).map(|_| Reverse((client.begins, Event::Arrive(at)))));
    }
    let all_begun = clients.iter().map(|client| client.begins).max().unwrap();
    let (mut outcome, mut known) = (Outcome::default(), BTreeMap::new());
    while let Some(Reverse((now, event))) = events.pop() {
        if now > lasts {
            break;
        }
        let mut begun = 0;
        let dispatched = |_: &mut Request<usize>| begun += 1;
        match event {
            Event::Arrive(at) => {
                let client = clients[at];
                match set.start(arrival(client.estimate, client.hash), at, now, dispatched) {
                    Ok(id) => drop(known.insert(id, None)),
                    Err(_) => {
                        outcome.rejected += 1;
                        events.push(Reverse((now + client.think.max(millis(1)), event)));
                    }
                }
            }
            Event::Finish(id) => {
                let at = set.requests()[&id].kept;
                let client = clients[at];
                if let Some(latency) = set.finish(id, now, dispatched) {
                    events.push(Reverse((now + latency, Event::Release(id))));
                }
                events.push(Reverse((now + client.think, Event::Arrive(at))));
            }
            Event::Release(id) => set.release(id, now, dispatched),
        }
        for (id, start) in &mut known {
            let Some(request) = set.requests().get(id) else {
                continue;
            };
            if start.is_none() && request.start.is_some() {
                *start = request.start;
                let client = clients[request.kept];
                events.push(Reverse((now + client.execution, Event::Finish(*id))));
                if now >= all_begun {
                    let work = f64::from(request.estimate.initial_seats) * client.execution.as_secs_f64();
                    *outcome.served.entry(request.kept).or_default() += work + request.estimate.final_work();
                    begun -= 1;
                } else {
                    begun -= 1;
                }
            }
        }
        assert_eq!(begun, 0, "each dispatched request is told of once");
        known.retain(|id, _| set.requests().get(id).is_some_and(|request| !request.finished));
        check(&set);
    }
    outcome
}

/// Checks the invariants that hold after every step.
fn check<T>(set: &QueueSet<T>) {
    let totals = set.totals();
    let widest = set.requests().values().map(Request::seats).max().unwrap_or(0);
    if set.queuing != Queuing::Exempt {
        // Seats that are kept do not hinder a request that is wider than the level.
        let kept = set.requests().values().filter(|request| request.finished);
        let kept: usize = kept.map(Request::seats).sum();
        assert!(
            totals.seats_in_use - kept <= set.concurrency_limit.max(widest),
            "{totals:?}"
        );
    }
    let waiting = set.requests().values().filter(|request| request.start.is_none());
    let (count, seats) = waiting.fold((0, 0), |(count, seats), request| {
        (count + 1, seats + request.seats())
    });
    assert_eq!((count, seats), (totals.waiting, totals.seats_waiting));
    let in_queues: usize = set.queues().iter().map(|queue| queue.waiting.len()).sum();
    assert_eq!(in_queues, totals.waiting);
    let active = set.queues().iter().filter(|queue| queue.is_active()).count();
    assert_eq!(active, set.active_queues);
    if totals.waiting > 0 && widest <= 1 {
        // No request waits while there are seats.
        assert!(totals.seats_in_use >= set.concurrency_limit, "{totals:?}");
    }
}

/// Each client got its share of the seats, to some part of it.
#[track_caller]
fn check_shares(outcome: &Outcome, expected: &[f64], margin: f64) {
    let all: f64 = outcome.served.values().sum();
    for (at, share) in expected.iter().enumerate() {
        let served = outcome.served.get(&at).copied().unwrap_or_default() / all;
        assert!(
            (served - share).abs() <= margin * share,
            "client {at}: {served} of {share}: {outcome:?}"
        );
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// A flow that always executes something and never waits falls behind in virtual time, and must not make up for it.
#[test]
fn fair_queuing_lets_a_wide_request_run_beside_a_flow_that_never_waits() {
    let wide = Client {
        estimate: WorkEstimate::seats(10),
        begins: millis(300_000),
        ..client(2, 1, 100, 1_000)
    };
    let later = Client {
        begins: millis(600),
        ..client(0, 1, 1_000, 200)
    };
    let clients = [client(0, 1, 1_000, 200), later, client(1, 8, 1_000, 1), wide];
    let outcome = simulate(queued(3, 1, 50), 10, &clients, millis(330_000));
    assert!(outcome.served[&3] > 1.0, "{outcome:?}");
}

#[test]
fn fair_queuing_gives_greedy_and_modest_flows_the_same() {
    // Upstream's TestUniformFlowsHandSize1, with different numbers of threads.
    let clients = [
        client(1_001, 8, 1_000, 1),
        client(2_002, 8, 1_000, 1),
        client(3_003, 40, 1_000, 1),
    ];
    let outcome = simulate(queued(9, 1, 100), 4, &clients, MINUTE * 5);
    check_shares(&outcome, &[1.0 / 3.0; 3], 0.1);
    assert_eq!(outcome.rejected, 0);
}

#[test]
fn fair_queuing_serves_what_is_wanted_where_there_is_enough() {
    // TestDifferentFlowsExpectUnequal: one flow thinks so long that it wants less than its share.
    let clients = [client(90_210, 3, 1_000, 2_000), client(61_011, 6, 1_000, 1)];
    let outcome = simulate(queued(9, 1, 100), 4, &clients, MINUTE * 5);
    check_shares(&outcome, &[0.25, 0.75], 0.15);
}

#[test]
fn fair_queuing_counts_seats_and_not_requests() {
    // TestDifferentWidths: wide requests and narrow ones take the same of the level.
    let wide = Client {
        estimate: WorkEstimate::seats(2),
        ..client(10_010, 13, 4_000, 1)
    };
    let clients = [wide, client(20_020, 23, 4_000, 1)];
    let outcome = simulate(queued(9, 1, 100), 6, &clients, MINUTE * 20);
    check_shares(&outcome, &[0.5, 0.5], 0.15);
}

#[test]
fn fair_queuing_counts_seats_that_are_kept_afterwards() {
    // TestSecondsOfAdditionalLatency.
    let estimate = WorkEstimate {
        initial_seats: 1,
        final_seats: 1,
        additional_latency: millis(1_000),
    };
    let late = Client {
        estimate,
        ..client(10_010, 8, 1_000, 1)
    };
    let clients = [late, client(20_020, 8, 1_000, 1)];
    let outcome = simulate(queued(9, 1, 100), 4, &clients, MINUTE * 10);
    check_shares(&outcome, &[0.5, 0.5], 0.15);
}

#[test]
fn fair_queuing_tells_once_of_a_request_without_room() {
    let mut set: QueueSet<&str> = QueueSet::new(queued(1, 1, 10), 2, Duration::ZERO);
    let mut start = |seats, name| {
        let arrival = arrival(WorkEstimate::seats(seats), 1);
        let id = set.start(arrival, name, Duration::ZERO, |_| ()).unwrap();
        (id, set.take_unaccommodated().map(|request| request.kept))
    };
    let (narrow, told) = start(1, "narrow");
    assert_eq!(told, None);
    assert_eq!(start(2, "wide").1, Some("wide"), "one seat of two is free");
    assert!(set.take_unaccommodated().is_none(), "told before");
    assert_eq!(set.finish(narrow, millis(1), |_| ()), None);
    assert!(set.take_unaccommodated().is_none(), "it began");
}

#[test]
fn fair_queuing_gives_a_flow_no_credit_for_its_silence() {
    // TestWindup: the flow that comes later has its share from then on, and not what it did not use before.
    let late = Client {
        begins: MINUTE * 2,
        ..client(2_002, 16, 1_000, 1)
    };
    let clients = [client(1_001, 16, 1_000, 1), late];
    let outcome = simulate(queued(9, 1, 100), 4, &clients, MINUTE * 4);
    check_shares(&outcome, &[0.5, 0.5], 0.1);
}

#[test]
fn queue_set_without_queues_rejects() {
    // TestNoRestraint's opposite: `limitResponse: Reject`.
    let mut set: QueueSet<()> = QueueSet::new(Queuing::Reject, 2, Duration::ZERO);
    let start = |set: &mut QueueSet<()>, seats| {
        set.start(arrival(WorkEstimate::seats(seats), 0), (), Duration::ZERO, |_| ())
    };
    let first = start(&mut set, 1).unwrap();
    assert_eq!(start(&mut set, 2), Err(Rejection::ConcurrencyLimit));
    start(&mut set, 1).unwrap();
    assert_eq!(start(&mut set, 1), Err(Rejection::ConcurrencyLimit));
    set.finish(first, millis(1), |_| ());
    start(&mut set, 1).unwrap();
    assert_eq!(set.totals().rejected, 2);
}

#[test]
fn queue_set_that_is_exempt_rejects_nothing() {
    let mut set: QueueSet<()> = QueueSet::new(Queuing::Exempt, 0, Duration::ZERO);
    for _ in 0..1_000 {
        set.start(one_seat(0), (), Duration::ZERO, |_| ()).unwrap();
    }
    assert_eq!(set.totals().executing, 1_000);
}

#[test]
fn queue_set_full_queue_rejects_and_others_do_not() {
    let mut set: QueueSet<()> = QueueSet::new(queued(64, 1, 2), 1, Duration::ZERO);
    let start = |set: &mut QueueSet<()>, hash, own| {
        set.start(
            Arrival {
                own,
                ..one_seat(hash)
            },
            (),
            Duration::ZERO,
            |_| (),
        )
    };
    let executing = start(&mut set, 1, false).unwrap();
    let waiting = [
        start(&mut set, 1, false).unwrap(),
        start(&mut set, 1, false).unwrap(),
    ];
    assert_eq!(start(&mut set, 1, false), Err(Rejection::QueueFull));
    let own = start(&mut set, 1, true).unwrap();
    let other = start(&mut set, 2, false).unwrap();
    // A request that times out frees its queue position, and is not served.
    assert!(set.cancel(waiting[0], Rejection::TimeOut, Duration::ZERO));
    assert!(!set.cancel(executing, Rejection::TimeOut, Duration::ZERO));
    let mut order = vec![executing];
    for at in 0..4 {
        let done = order[at];
        set.finish(done, millis(at as u64), |_| ());
        order.extend(
            set.requests()
                .iter()
                .filter(|(_, request)| request.start.is_some())
                .map(|(id, _)| *id),
        );
    }
    assert_eq!(order.len(), 4);
    let position = |id: RequestId| order.iter().position(|own| *own == id).unwrap();
    assert!(position(waiting[1]) < position(own), "a queue is served in order");
    assert!(position(other) < position(own), "flows take turns");
    assert!(set.is_idle());
    assert_eq!((set.totals().rejected, set.totals().timed_out), (2, 1));
}

#[test]
fn queue_set_request_wider_than_the_level_has_it_alone() {
    let mut set: QueueSet<()> = QueueSet::new(queued(8, 1, 50), 4, Duration::ZERO);
    let narrow = set.start(one_seat(1), (), Duration::ZERO, |_| ()).unwrap();
    let wide = set
        .start(arrival(WorkEstimate::seats(9), 2), (), Duration::ZERO, |_| ())
        .unwrap();
    assert!(set.requests()[&wide].start.is_none());
    set.finish(narrow, millis(1), |_| ());
    assert!(set.requests()[&wide].start.is_some());
}

#[test]
fn queue_set_follows_its_configuration() {
    let mut set: QueueSet<()> = QueueSet::new(queued(8, 1, 50), 1, Duration::ZERO);
    let ids: Vec<_> = (0..6)
        .map(|hash| set.start(one_seat(hash), (), Duration::ZERO, |_| ()).unwrap())
        .collect();
    let mut begun = 0;
    set.configure(queued(8, 1, 50), 3, millis(1), |_| begun += 1);
    assert_eq!((begun, set.totals().executing), (2, 3));
    // Fewer queues: those that are left over are served to their end.
    set.configure(queued(2, 1, 50), 6, millis(2), |_| begun += 1);
    assert_eq!(begun, 5);
    for id in ids {
        set.finish(id, millis(3), |_| ());
    }
    assert_eq!(set.queues().len(), 2);
    check(&set);
    // A limit of nothing begins nothing.
    set.configure(queued(2, 1, 50), 0, millis(4), |_| ());
    let id = set.start(one_seat(1), (), millis(4), |_| ()).unwrap();
    assert!(set.requests()[&id].start.is_none());
}

#[test]
fn queue_set_keeps_its_invariants_under_random_clients() {
    let mut state = 42u64;
    let mut random = |bound: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    for _ in 0..16 {
        let clients: Vec<Client> = (0..=random(5))
            .map(|_| Client {
                estimate: WorkEstimate {
                    initial_seats: u32::try_from(1 + random(3)).unwrap(),
                    final_seats: u32::try_from(random(3)).unwrap(),
                    additional_latency: millis(random(2) * 5),
                },
                begins: millis(random(3_000)),
                ..client(random(1 << 60), 1 + random(20), 1 + random(300), random(200))
            })
            .collect();
        let queues = 1 + usize::try_from(random(16)).unwrap();
        let queuing = queued(
            queues,
            1 + usize::try_from(random(queues as u64)).unwrap().min(5),
            10,
        );
        let limit = 1 + usize::try_from(random(8)).unwrap();
        let outcome = simulate(queuing, limit, &clients, Duration::from_secs(20));
        assert!(!outcome.served.is_empty());
    }
}

#[test]
fn request_that_leaves_before_its_work_keeps_no_seats() {
    let mut set = QueueSet::new(queued(1, 1, 4), 1, Duration::ZERO);
    let estimate = WorkEstimate {
        initial_seats: 1,
        final_seats: 1,
        additional_latency: millis(500),
    };
    let leaving = set
        .start(arrival(estimate, 1), (), Duration::ZERO, |_| ())
        .unwrap();
    let next = set.start(one_seat(2), (), millis(1), |_| ()).unwrap();
    assert_eq!(set.requests()[&next].start, None);
    set.forget_final_work(leaving);
    assert_eq!(set.finish(leaving, millis(2), |_| ()), None);
    assert_eq!(set.requests()[&next].start, Some(millis(2)));
}

#[test]
fn utilization_is_of_seats_requests_and_demand() {
    let mut set = QueueSet::new(queued(2, 1, 4), 2, Duration::ZERO);
    let ids: Vec<_> = (0..3)
        .map(|hash| set.start(one_seat(hash), (), Duration::ZERO, |_| ()).unwrap())
        .collect();
    for id in ids {
        set.finish(id, millis(10), |_| ());
    }
    let used = set.utilization();
    // Of 20 ms, 10 ms: two of two seats, two requests in two seats, one of eight waiting, three seats wanted of two.
    let ratios = [
        &mut used.seats,
        &mut used.executing,
        &mut used.waiting,
        &mut used.demand,
    ];
    let sums = ratios.map(|ratio| ratio.histogram(millis(20)).get_sample_sum() / 1e6);
    assert_eq!(sums.map(f64::round), [10.0, 10.0, 1.0, 15.0]);
}

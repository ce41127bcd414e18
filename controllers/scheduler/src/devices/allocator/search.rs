//! The search: every candidate for every device of every request, until all fit together.
//!
//! It keeps its own stack, for it is as deep as there are devices to find. A position is a device of a request; a frame is a
//! decision that can be taken back.

use super::candidates::{Matches, Place, places};
use super::constraints::Constraint;
use super::counters::Consuming;
use super::requests::{Prepared, Preparing, Requests};
use super::solution::{Chosen, Solution};
use super::{Refusal, Surroundings, Wanted, capacity};
use crate::devices::allocated::Shared;
use crate::devices::objects::{DeviceId, MAX_RESULTS};
use crate::devices::pools::NearPool;
use std::collections::{BTreeSet, HashMap};

/// A device that is to be found.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    claim: usize,
    request: usize,
    alternative: usize,
    /// Its number in the request.
    device: usize,
    /// The first candidate to look at: devices of one request may be exchanged, so that earlier ones were tried.
    from: usize,
    /// The alternative is decided.
    in_alternative: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Found,
    Nothing,
    /// The claim would have too many devices.
    TooMany,
}

/// A decision, and how to go on where it leads nowhere.
#[derive(Debug)]
enum Frame {
    /// A claim is complete: too many devices in the next one are no reason to look for other devices here.
    Claim,
    Alternatives {
        at: Position,
        next: usize,
        all_too_many: bool,
    },
    /// A candidate was taken; the next one to try.
    Candidate { at: Position, next: usize },
    /// A device of those that are all wanted.
    Needed { at: Position },
}

enum Flow {
    Enter(Position),
    Back(Outcome),
}

#[derive(Debug)]
pub(super) struct Search<'a> {
    around: Surroundings<'a>,
    pools: Vec<NearPool<'a>>,
    requests: Requests<'a>,
    candidates: Vec<Place<'a>>,
    constraints: Vec<Vec<Constraint<'a>>>,
    matches: Matches,
    /// Claims that take the device.
    taking: HashMap<&'a DeviceId, BTreeSet<usize>>,
    sharing: HashMap<&'a DeviceId, Shared>,
    consuming: Consuming<'a>,
    claims: Vec<Wanted<'a>>,
    chosen: Vec<Vec<Chosen<'a>>>,
    /// Alternatives that were chosen, by claim and request.
    selected: Vec<Vec<usize>>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        around: Surroundings<'a>,
        pools: Vec<NearPool<'a>>,
        claims: &[Wanted<'a>],
    ) -> Result<Self, Refusal> {
        let places = places(&around, &pools);
        around.budget.spend(places.iter().map(Vec::len).sum())?;
        let mut matches = Matches::default();
        let preparing = Preparing {
            around: &around,
            pools: &pools,
            places: &places,
            matches: &mut matches,
            made: 0,
        };
        let requests = preparing.prepare(claims)?;
        let constraints: Result<_, Refusal> = claims.iter().map(Constraint::of_claim).collect();
        let usable = |place: &Place<'_>| pools[place.pool].is_usable();
        Ok(Self {
            around,
            candidates: places.into_iter().flatten().filter(usable).collect(),
            constraints: constraints?,
            matches,
            taking: HashMap::new(),
            sharing: HashMap::new(),
            consuming: Consuming::default(),
            claims: claims.to_vec(),
            chosen: claims.iter().map(|_| Vec::new()).collect(),
            selected: requests.iter().map(|own| vec![0; own.len()]).collect(),
            requests,
            pools,
        })
    }

    pub(super) fn run(mut self) -> Result<Solution<'a>, Refusal> {
        let mut stack = Vec::new();
        let mut flow = Flow::Enter(Position::default());
        let outcome = loop {
            flow = match flow {
                Flow::Enter(at) => self.enter(at, &mut stack)?,
                Flow::Back(outcome) => match stack.pop() {
                    Some(frame) => self.back(outcome, frame, &mut stack)?,
                    None => break outcome,
                },
            };
        };
        if outcome == Outcome::Found {
            return Ok(Solution {
                claims: self.claims,
                requests: self.requests,
                chosen: self.chosen,
                selected: self.selected,
            });
        }
        let is_invalid = self.pools.iter().any(NearPool::is_invalid);
        Err(match is_invalid {
            true => Refusal::InvalidPools,
            false => Refusal::Unsatisfied,
        })
    }

    fn enter(&mut self, at: Position, stack: &mut Vec<Frame>) -> Result<Flow, Refusal> {
        self.around.budget.spend(1)?;
        let Some(claim) = self.requests.get(at.claim) else {
            return Ok(Flow::Back(Outcome::Found));
        };
        let Some(alternatives) = claim.get(at.request) else {
            stack.push(Frame::Claim);
            return Ok(Flow::Enter(Position {
                claim: at.claim + 1,
                ..Position::default()
            }));
        };
        if !at.in_alternative {
            return Ok(self.next_alternative(at, 0, true, stack));
        }
        let own = &alternatives[at.alternative];
        if own.all.is_some() && own.count == 0 {
            return Ok(Flow::Back(Outcome::Nothing));
        }
        if at.device >= own.count {
            return Ok(Flow::Enter(Position {
                claim: at.claim,
                request: at.request + 1,
                ..Position::default()
            }));
        }
        if self.chosen[at.claim].len() + own.count - at.device > MAX_RESULTS {
            return Ok(Flow::Back(Outcome::TooMany));
        }
        let needed = own.all.as_ref().map(|all| all[at.device]);
        let Some(place) = needed else {
            return self.next_candidate(at, at.from, stack);
        };
        if !self.take(at, place, true)? {
            return Ok(Flow::Back(Outcome::Nothing));
        }
        stack.push(Frame::Needed { at });
        Ok(Flow::Enter(Position {
            device: at.device + 1,
            ..at
        }))
    }

    fn back(&mut self, outcome: Outcome, frame: Frame, stack: &mut Vec<Frame>) -> Result<Flow, Refusal> {
        match (frame, outcome) {
            (Frame::Claim, Outcome::TooMany) => Ok(Flow::Back(Outcome::Nothing)),
            (Frame::Alternatives { at, next, .. }, Outcome::Found) => {
                self.selected[at.claim][at.request] = next - 1;
                Ok(Flow::Back(outcome))
            }
            (_, Outcome::Found) | (Frame::Claim, Outcome::Nothing) => Ok(Flow::Back(outcome)),
            (
                Frame::Alternatives {
                    at,
                    next,
                    all_too_many,
                },
                _,
            ) => {
                let all_too_many = all_too_many && outcome == Outcome::TooMany;
                Ok(self.next_alternative(at, next, all_too_many, stack))
            }
            (Frame::Candidate { at, next }, Outcome::Nothing) => {
                self.give_back(at);
                self.next_candidate(at, next, stack)
            }
            (Frame::Candidate { at, .. } | Frame::Needed { at }, _) => {
                self.give_back(at);
                Ok(Flow::Back(outcome))
            }
        }
    }

    fn next_alternative(
        &self,
        at: Position,
        next: usize,
        all_too_many: bool,
        stack: &mut Vec<Frame>,
    ) -> Flow {
        if next >= self.requests[at.claim][at.request].len() {
            return Flow::Back(match all_too_many && next > 0 {
                true => Outcome::TooMany,
                false => Outcome::Nothing,
            });
        }
        stack.push(Frame::Alternatives {
            at,
            next: next + 1,
            all_too_many,
        });
        Flow::Enter(Position {
            alternative: next,
            in_alternative: true,
            ..at
        })
    }

    fn next_candidate(&mut self, at: Position, from: usize, stack: &mut Vec<Frame>) -> Result<Flow, Refusal> {
        for index in from..self.candidates.len() {
            self.around.budget.spend(1)?;
            let place = self.candidates[index];
            let own = &self.requests[at.claim][at.request][at.alternative];
            // Reads whether the device is in use before the selectors are evaluated: that is cheap.
            if self.is_in_use(at.claim, own, place)
                || !self.matches.is_selectable(&self.around, own, place)?
                || !self.take(at, place, false)?
            {
                continue;
            }
            stack.push(Frame::Candidate { at, next: index + 1 });
            return Ok(Flow::Enter(Position {
                device: at.device + 1,
                from: index,
                ..at
            }));
        }
        Ok(Flow::Back(Outcome::Nothing))
    }

    fn is_in_use(&self, claim: usize, own: &Prepared<'a>, place: Place<'a>) -> bool {
        let id = &place.device.id;
        let taking = self.taking.get(id).filter(|claims| !claims.is_empty());
        if own.is_admin() {
            return taking.is_some_and(|claims| claims.contains(&claim));
        }
        let allocated = &self.around.devices.allocated;
        // Shares may be left of a device that its driver shares no more.
        let is_shared_out = !place.device.allow_multiple && allocated.is_used(id);
        is_shared_out || allocated.is_taken(id) || taking.is_some()
    }

    /// Takes the device where nothing speaks against it. One that is needed, and that a constraint refuses, is an error:
    /// the claim cannot be satisfied on any node.
    fn take(&mut self, at: Position, place: Place<'a>, is_needed: bool) -> Result<bool, Refusal> {
        let own = &self.requests[at.claim][at.request][at.alternative];
        let (device, id) = (place.device, &place.device.id);
        let (devices, is_shared) = (self.around.devices, device.allow_multiple);
        if self.is_in_use(at.claim, own, place) {
            return Ok(false);
        }
        let tolerations = &own.request.tolerations;
        let of_constraints = self.constraints[at.claim].iter().map(Constraint::steps);
        let of_device = devices.taint_steps(device, tolerations) + capacity::steps(device);
        self.around
            .budget
            .spend(of_constraints.sum::<usize>() + of_device)?;
        if devices.is_tainted(device, tolerations) {
            return Ok(false);
        }
        let (used, chosen) = (devices.allocated.shared(id), self.sharing.get(id));
        // A share more consumes no more counters of the pool.
        let in_use = is_shared && (used.is_some() || chosen.is_some_and(|own| !own.is_empty()));
        let counts = !in_use && !device.consumes.is_empty();
        let pool = self.pools[place.pool];
        if counts
            && !self
                .consuming
                .has_room(&self.around, (place.pool, pool), &device.consumes)?
        {
            return Ok(false);
        }
        let consumed = capacity::consumed(own.request.capacity.as_ref(), device, used, chosen);
        let consumed = consumed.map_err(|why| {
            let (key, name) = (own.claim_key, own.name);
            Refusal::Broken(format!(
                "claim {key}, request {name}: checking capacity for device {id}: {why}"
            ))
        })?;
        let Some(consumed) = consumed else {
            return Ok(false);
        };
        let constraints = &mut self.constraints[at.claim];
        let refusing = constraints.iter_mut().position(|one| !one.add(own, device));
        if let Some(refusing) = refusing {
            constraints[..refusing].iter_mut().for_each(|one| one.remove(own));
            if is_needed {
                let (key, name) = (own.claim_key, own.name);
                return Err(Refusal::Broken(format!(
                    "claim {key}, request {name}: cannot add device {id} because a claim constraint would not be satisfied"
                )));
            }
            return Ok(false);
        }
        if is_shared {
            self.sharing.entry(id).or_default().count(&consumed, true);
        } else {
            self.taking.entry(id).or_default().insert(at.claim);
        }
        if counts {
            self.consuming.count(place.pool, &device.consumes, true);
        }
        self.chosen[at.claim].push(Chosen {
            place,
            request: at.request,
            alternative: at.alternative,
            consumed: is_shared.then_some(consumed),
            counts,
        });
        Ok(true)
    }

    /// Takes back the claim's last choice.
    fn give_back(&mut self, at: Position) {
        let Some(last) = self.chosen[at.claim].pop() else {
            return;
        };
        let own = &self.requests[at.claim][last.request][last.alternative];
        let device = last.place.device;
        self.constraints[at.claim]
            .iter_mut()
            .for_each(|one| one.remove(own));
        if last.counts {
            self.consuming.count(last.place.pool, &device.consumes, false);
        }
        match last.consumed {
            Some(consumed) => {
                if let Some(shared) = self.sharing.get_mut(&device.id) {
                    shared.count(&consumed, false);
                }
            }
            None => {
                if let Some(claims) = self.taking.get_mut(&device.id) {
                    claims.remove(&at.claim);
                }
            }
        }
    }
}

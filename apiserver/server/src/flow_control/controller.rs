//! From stored objects to priority levels in service, and the levels' limits by their demand.

use super::bootstrap;
use super::concurrency::{LevelDemand, divide};
use super::flow_schema::{self, distinguisher, flow_hash};
use super::metrics::{FlowControlMetrics, LevelFigures, SchemaMetrics};
use super::objects::{CATCH_ALL, FlowSchema, PriorityLevelConfiguration};
use super::priority_level::{Digest, PriorityLevel, Start};
use super::queue_set::Queuing;
use super::seat_demand::SeatDemand;
use super::utilization::ReadVersusWrite;
use super::watch_tracker::WatchTracker;
use super::work_estimate::{self, ListRequest, ObjectStats, WorkEstimate};
use apiserver_endpoints::RequestInfo;
use apiserver_registry::Registry;
use apiserver_storage::Prefix;
use arc_swap::ArcSwap;
use http::HeaderValue;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Interval at which limits follow demand.
const ADJUSTMENT_PERIOD: Duration = Duration::from_secs(10);
/// Largest part of a level's seats for one request.
const MAX_SEATS_PART: f64 = 0.15;
/// Objects of a collection that are looked at for their size.
const SAMPLE: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct FlowControl {
    /// All seats of the server.
    seats: usize,
    runtime: Runtime,
    /// Flow schemas in the order in which they classify requests.
    schemas: ArcSwap<Vec<Arc<Schema>>>,
    levels: Mutex<BTreeMap<String, LevelState>>,
    pub(crate) watches: Arc<WatchTracker>,
    registry: Registry,
    metrics: FlowControlMetrics,
    pub(super) read_versus_write: ReadVersusWrite,
}

/// A FlowSchema with its level.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(super) object: FlowSchema,
    pub(super) uid: HeaderValue,
    pub(super) level: Arc<PriorityLevel>,
    pub(super) metrics: SchemaMetrics,
    is_queued: bool,
}

/// A level and its limits, in seats.
#[derive(Debug)]
pub(super) struct LevelState {
    pub(super) level: Arc<PriorityLevel>,
    object: PriorityLevelConfiguration,
    queuing: Queuing,
    /// Its object is gone, requests of it are not.
    pub(super) quiescing: bool,
    demand: SeatDemand,
    nominal: f64,
    lower: f64,
    upper: f64,
    current: f64,
}

/// The result of a request for seats, and the schema that classified it.
#[derive(Debug)]
pub(crate) struct Classified {
    pub(crate) schema: Arc<Schema>,
    pub(crate) start: Start,
}

impl Schema {
    pub(crate) fn level(&self) -> &PriorityLevel {
        &self.level
    }

    /// The identities that answers carry.
    pub(crate) fn uids(&self) -> (HeaderValue, HeaderValue) {
        (self.uid.clone(), self.level.uid())
    }
}

fn header(uid: &str) -> HeaderValue {
    HeaderValue::from_str(uid).unwrap_or(HeaderValue::from_static(""))
}

impl FlowControl {
    /// A controller with the mandatory objects only, until there are others.
    pub(crate) fn new(
        seats: usize,
        registry: Registry,
        metrics: FlowControlMetrics,
        runtime: &Runtime,
    ) -> Arc<Self> {
        let control = Arc::new(Self {
            seats,
            runtime: runtime.clone(),
            schemas: ArcSwap::default(),
            levels: Mutex::default(),
            watches: Arc::default(),
            registry,
            metrics,
            read_versus_write: ReadVersusWrite::new(runtime.monotonic()),
        });
        control.configure(Vec::new(), Vec::new());
        control
    }

    /// Lets the levels' limits follow their demand, for as long as the server runs.
    pub(crate) async fn adjust_limits(self: Arc<Self>) {
        loop {
            self.runtime.sleep(ADJUSTMENT_PERIOD).await;
            self.adjust(&mut self.levels.lock());
        }
    }

    /// Seats for a request; `list` where it is one.
    pub(crate) fn start(&self, digest: Digest, list: Option<ListRequest>) -> Classified {
        let schemas = self.schemas.load();
        let (user, info) = (&*digest.user, &*digest.info);
        let matching = schemas
            .iter()
            .find(|schema| flow_schema::matches(&schema.object, user, info));
        // A user in no group that a schema names.
        let rest = || {
            schemas
                .iter()
                .find(|schema| schema.object.metadata.name == CATCH_ALL)
        };
        let schema = matching
            .or_else(rest)
            .expect("there is always the one of the rest");
        let mut hash = 0;
        if schema.is_queued {
            let flow = distinguisher(schema.object.spec.distinguisher_method, user, info);
            hash = flow_hash(&schema.object.metadata.name, flow);
        }
        let estimate = self.estimate(schema, &digest, list);
        Classified {
            start: schema.level.start(schema, digest, hash, estimate),
            schema: Arc::clone(schema),
        }
    }

    fn estimate(&self, schema: &Schema, digest: &Digest, list: Option<ListRequest>) -> WorkEstimate {
        let (info, maximum) = (&*digest.info, schema.level.max_seats());
        if let Some(list) = list {
            return work_estimate::list(list, self.stats(info), maximum);
        }
        // A token is no object that clients watch.
        let is_token = info.resource == "serviceaccounts" && info.subresource == "token";
        let changes = info.is_resource_request
            && matches!(info.verb.as_str(), "create" | "update" | "patch" | "delete")
            && !is_token;
        if !changes {
            return WorkEstimate::seats(WorkEstimate::MINIMUM);
        }
        let watches = self.watches.interested_in(info);
        #[expect(clippy::cast_precision_loss, reason = "watches are few")]
        schema.metrics.watch_count.observe(watches as f64);
        work_estimate::mutating(watches, maximum)
    }

    /// Objects that a list would go through: those of its namespace, where it names one. Upstream takes all objects of the
    /// resource, so that those of one tenant make the lists of all others wide. `None` where the resource is not served here.
    fn stats(&self, info: &RequestInfo) -> Option<ObjectStats> {
        let store = self
            .registry
            .store(&info.api_group, &info.api_version, &info.resource)?;
        let prefix = Prefix::parse(&store.row.collection(&info.namespace)).ok()?;
        let sample = self.registry.stored().sample(&prefix, SAMPLE)?;
        Some(ObjectStats {
            count: sample.count,
            average_bytes: sample.average_bytes,
        })
    }

    /// Takes over the stored objects. The mandatory schemas are always as they must be, and `exempt` is the first.
    pub(crate) fn configure(&self, levels: Vec<PriorityLevelConfiguration>, mut schemas: Vec<FlowSchema>) {
        let mut states = self.levels.lock();
        self.configure_levels(&mut states, levels);
        let mandatory = bootstrap::mandatory_flow_schemas(&schemas);
        schemas.retain(|schema| {
            let level = &schema.spec.priority_level_configuration.name;
            let is_mandatory = bootstrap::is_mandatory(&schema.metadata.name);
            !is_mandatory && states.get(level).is_some_and(|state| !state.quiescing)
        });
        schemas.extend(mandatory);
        flow_schema::in_order(&mut schemas);

        let schemas = schemas.into_iter().filter_map(|object| {
            let state = states.get(&object.spec.priority_level_configuration.name)?;
            let name = object.metadata.name.clone();
            Some(Arc::new(Schema {
                uid: header(&object.metadata.uid),
                is_queued: matches!(state.queuing, Queuing::Queue { queues, .. } if queues > 1),
                metrics: self.metrics.of(&state.level.name, &name),
                level: Arc::clone(&state.level),
                object,
            }))
        });

        self.schemas.store(Arc::new(schemas.collect()));
        self.adjust(&mut states);
    }

    fn configure_levels(
        &self,
        states: &mut BTreeMap<String, LevelState>,
        mut objects: Vec<PriorityLevelConfiguration>,
    ) {
        let mandatory = bootstrap::mandatory_priority_levels(&objects);
        objects.retain(|object| !bootstrap::is_mandatory(&object.metadata.name));
        objects.extend(mandatory);
        states.values_mut().for_each(|state| state.quiescing = true);
        for object in objects {
            // The API refuses what contradicts itself; whatever is stored nevertheless is no level.
            let Some(queuing) = object.queuing() else { continue };
            let name = object.metadata.name.clone();
            let level = match states.remove(&name) {
                Some(state) => (state.level, state.demand, state.current),
                None => (
                    PriorityLevel::new(&name, queuing, 0, &self.runtime),
                    SeatDemand::default(),
                    0.0,
                ),
            };
            let (level, demand, current) = level;
            level.set_uid(header(&object.metadata.uid));
            states.insert(
                name,
                LevelState {
                    level,
                    object,
                    queuing,
                    quiescing: false,
                    demand,
                    nominal: 0.0,
                    lower: 0.0,
                    upper: 0.0,
                    current,
                },
            );
        }
        self.reap(states);
        self.set_bounds(states);
    }

    /// Levels without an object go when their last request has.
    fn reap(&self, states: &mut BTreeMap<String, LevelState>) {
        states.retain(|name, state| {
            let stays = !state.quiescing || !state.level.requests.lock().is_idle();
            if !stays {
                self.metrics.forget_level(name);
            }
            stays
        });
    }

    /// Divides all seats by shares.
    fn set_bounds(&self, states: &mut BTreeMap<String, LevelState>) {
        let all = as_f64(self.seats);
        let sum: f64 = states
            .values()
            .map(|state| f64::from(state.object.shares().nominal))
            .sum();
        for state in states.values_mut() {
            let shares = state.object.shares();
            let part = if sum > 0.0 {
                f64::from(shares.nominal) / sum
            } else {
                0.0
            };
            let nominal = (all * part).ceil();
            let of_nominal = |percent: u32| (nominal * f64::from(percent) / 100.0).round();
            state.nominal = nominal;
            state.lower = nominal - of_nominal(shares.lendable_percent);
            state.upper = nominal + shares.borrowing_percent.map_or(all, of_nominal);
            let max_seats = state.object.hand_size().map_or(0.0, |hand| {
                (nominal * MAX_SEATS_PART)
                    .ceil()
                    .min((nominal / as_f64(hand)).floor())
                    .max(1.0)
            });
            state.level.max_seats.store(as_u32(max_seats), Ordering::Relaxed);
        }
        let waiting: usize = states.values().map(|state| state.queuing.waiting_limit()).sum();
        let executing: f64 = states.values().map(|state| state.nominal).sum();
        let now = self.runtime.monotonic();
        self.read_versus_write.limits(as_f64(waiting), executing, now);
    }

    /// Sets every level's current limit: what it wants of what is left, as upstream's `updateBorrowing`.
    fn adjust(&self, states: &mut BTreeMap<String, LevelState>) {
        self.reap(states);
        let now = self.runtime.monotonic();
        for state in states.values_mut() {
            let interval = state.level.requests.lock().demand().reset(now);
            state.demand.update(interval);
        }
        let limits = limits(states);
        self.metrics.fair_fraction(limits.proportion);
        // Upstream's, for levels without seats of their own.
        let least_denominator = as_usize((as_f64(self.seats) / 10.0).round().max(1.0));
        for (state, (target, current)) in states.values_mut().zip(limits.of_levels) {
            // On a server with few seats rounding must not close a level; upstream's waits for the next adjustment then.
            let current = current.max(state.nominal.min(1.0));
            state.current = current;
            let seats = as_usize(current);
            let denominator = if seats > 0 { seats } else { least_denominator };
            state.level.configure(state.queuing, seats, denominator);
            let current_r = state.level.requests.lock().current_r();
            let figures = LevelFigures {
                nominal: state.nominal,
                lower: state.lower,
                upper: state.upper,
                current,
                high_watermark: state.demand.high_watermark,
                average: state.demand.average,
                deviation: state.demand.deviation,
                smoothed: state.demand.smoothed,
                target,
                current_r,
            };
            self.metrics.level(&state.level.name, figures);
        }
    }

    pub(super) fn monotonic(&self) -> Duration {
        self.runtime.monotonic()
    }

    /// Looks at all levels, by name.
    pub(super) fn with_levels<T>(&self, look: impl FnOnce(&BTreeMap<String, LevelState>) -> T) -> T {
        look(&self.levels.lock())
    }
}

/// Target and limit of each level.
struct Limits {
    of_levels: Vec<(f64, f64)>,
    proportion: f64,
}

fn limits(states: &BTreeMap<String, LevelState>) -> Limits {
    let least = |state: &LevelState| {
        let wanted = state.demand.high_watermark;
        // An exempt level is not limited; what it uses is taken from the others.
        let wanted = if state.object.is_exempt() {
            wanted
        } else {
            wanted.min(state.nominal)
        };
        state.lower.max(wanted)
    };
    let nominal: f64 = states.values().map(|state| state.nominal).sum();
    let exempt: f64 = states
        .values()
        .filter(|state| state.object.is_exempt())
        .map(least)
        .sum();
    let limited = || states.values().filter(|state| !state.object.is_exempt());
    let lower: f64 = limited().map(|state| state.lower).sum();
    let least_of_all: f64 = limited().map(least).sum();
    let target = |state: &LevelState| least(state).max(state.demand.smoothed);
    let left = nominal - exempt;
    let division = (left > least_of_all).then(|| {
        let demands: Vec<LevelDemand> = limited()
            .map(|state| LevelDemand {
                target: target(state),
                lower: least(state),
                upper: state.upper,
            })
            .collect();
        divide(nominal, &demands)
    });
    let mut shares = division
        .iter()
        .flatten()
        .flat_map(|division| division.shares.iter());
    let limit = |state: &LevelState| {
        if state.object.is_exempt() {
            return least(state);
        }
        match &division {
            Some(Some(_)) => shares.next().copied().unwrap_or(state.current).round(),
            // Contradictory bounds: everything stays.
            Some(None) => state.current,
            None if left <= lower => state.lower,
            None => {
                state.lower + ((least(state) - state.lower) * (left - lower) / (least_of_all - lower)).round()
            }
        }
    };
    let mut limit = limit;
    Limits {
        of_levels: states
            .values()
            .map(|state| (target(state), limit(state)))
            .collect(),
        proportion: division
            .iter()
            .flatten()
            .map(|division| division.proportion)
            .sum(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of seats are small")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole and not negative; casts of floats saturate"
)]
fn as_usize(value: f64) -> usize {
    value as usize
}

fn as_u32(value: f64) -> u32 {
    u32::try_from(as_usize(value)).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;

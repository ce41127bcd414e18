//! Share of ready nodes in each zone, and the rate at which its nodes may therefore be tainted. Pure but for its lock.
//!
//! | state | when | taints with `NoExecute` |
//! |---|---|---|
//! | normal | mostly ready | `--node-eviction-rate` |
//! | partial disruption | more than two nodes and `--unhealthy-zone-threshold` of all are not ready | `--secondary-node-eviction-rate`, none in a small zone |
//! | full disruption | none is ready | `--node-eviction-rate` |
//!
//! While every zone is fully disrupted no pod is evicted: then it is more likely that this server receives no heartbeats.

use crate::config::Config;
use machinery_meta::ObjectKey;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Number of nodes that may be unready in any zone.
const FEW: usize = 2;

/// State of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ZoneState {
    Normal,
    PartialDisruption,
    FullDisruption,
}

/// Answer to a request to taint a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permit {
    Now,
    /// After this time it is worth asking again.
    In(Duration),
    /// Only when the zone has changed.
    Never,
}

/// Every zone.
#[derive(Debug, Default)]
pub(super) struct Zones {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    nodes: BTreeMap<ObjectKey, NodeHealth>,
    zones: BTreeMap<String, Zone>,
}

/// Zone and readiness of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeHealth {
    pub(super) zone: String,
    pub(super) ready: bool,
}

#[derive(Debug, Default)]
struct Zone {
    ready: usize,
    unready: usize,
    /// Time at which a node of it was last tainted.
    last: Option<Duration>,
}

impl Zone {
    fn state(&self, config: &Config) -> ZoneState {
        let (unready, all) = (self.unready, self.ready + self.unready);
        if self.ready == 0 && unready > 0 {
            ZoneState::FullDisruption
        // A few nodes are no disruption: in a zone of three nodes one failed node is a third (upstream's
        // `ComputeZoneState`).
        } else if unready > FEW && is_at_least(unready, all, config.unhealthy_zone_threshold) {
            ZoneState::PartialDisruption
        } else {
            ZoneState::Normal
        }
    }

    /// Nodes tainted `NoExecute` per second.
    fn rate(&self, config: &Config) -> f64 {
        match self.state(config) {
            // A zone that is lost as a whole is evicted at the full rate, as long as another one is well.
            ZoneState::Normal | ZoneState::FullDisruption => config.node_eviction_rate,
            ZoneState::PartialDisruption
                if self.ready + self.unready > config.large_cluster_size_threshold =>
            {
                config.secondary_node_eviction_rate
            }
            // A small cluster has no room for the pods of a disrupted zone: none is evicted (upstream's
            // `ReducedQPSFunc`).
            ZoneState::PartialDisruption => 0.0,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of nodes")]
fn is_at_least(part: usize, all: usize, share: f64) -> bool {
    part as f64 / all as f64 >= share
}

impl State {
    /// No zone has a node that is ready.
    fn is_all_lost(&self) -> bool {
        self.zones.values().all(|zone| zone.ready == 0)
    }

    fn count(&mut self, standing: &NodeHealth, by: impl Fn(&mut usize)) {
        let zone = self.zones.entry(standing.zone.clone()).or_default();
        by(if standing.ready {
            &mut zone.ready
        } else {
            &mut zone.unready
        });
        if zone.ready + zone.unready == 0 {
            self.zones.remove(&standing.zone);
        }
    }
}

/// Effect of one node's change on the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shift {
    /// Nothing.
    None,
    /// A node became ready or unready, came or went: nodes that wait for a permit are to ask again.
    Zone,
    /// The first node is ready after none was: the silence of the others was ours.
    HeartbeatTracker,
}

impl Zones {
    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A node is in this zone and does so; `None` where it is gone, or does not count.
    pub(super) fn stands(&self, node: &ObjectKey, standing: Option<NodeHealth>) -> Shift {
        self.with(|state| {
            let known = state.nodes.get(node).cloned();
            if known == standing {
                return Shift::None;
            }
            let was_lost = state.is_all_lost() && !state.nodes.is_empty();
            if let Some(known) = &known {
                state.count(known, |count| *count -= 1);
                state.nodes.remove(node);
            }
            if let Some(standing) = standing {
                state.count(&standing, |count| *count += 1);
                state.nodes.insert(node.clone(), standing);
            }
            // The caller restarts all clocks: while everything was lost no heartbeat could arrive.
            if was_lost && !state.is_all_lost() {
                Shift::HeartbeatTracker
            } else {
                Shift::Zone
            }
        })
    }

    /// Ready nodes and others, by zone.
    pub(super) fn sizes(&self) -> Vec<(String, usize, usize)> {
        let size = |(name, zone): (&String, &Zone)| (name.clone(), zone.ready, zone.unready);
        self.with(|state| state.zones.iter().map(size).collect())
    }

    /// States of the zones.
    #[cfg(test)]
    pub(super) fn states(&self, config: &Config) -> Vec<(String, ZoneState)> {
        let state = |(name, zone): (&String, &Zone)| (name.clone(), zone.state(config));
        self.with(|state_of| state_of.zones.iter().map(state).collect())
    }

    /// Reports whether all evictions have stopped.
    pub(super) fn is_all_lost(&self) -> bool {
        self.with(|state| state.is_all_lost())
    }

    /// Asks to give up one node of a zone, and takes the permit where there is one.
    pub(super) fn permit(&self, zone: &str, now: Duration, config: &Config) -> Permit {
        self.with(|state| {
            let lost = state.is_all_lost();
            let Some(zone) = state.zones.get_mut(zone).filter(|_| !lost) else {
                return Permit::Never;
            };
            let rate = zone.rate(config);
            if rate <= 0.0 {
                return Permit::Never;
            }
            let free_at = zone.last.map(|last| last + Duration::from_secs_f64(1.0 / rate));
            match free_at.filter(|free_at| *free_at > now) {
                Some(free_at) => Permit::In(free_at - now),
                None => {
                    zone.last = Some(now);
                    Permit::Now
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(ready: usize, unready: usize) -> Zones {
        let zones = Zones::default();
        for number in 0..ready + unready {
            let standing = NodeHealth {
                zone: "z".to_owned(),
                ready: number < ready,
            };
            zones.stands(&ObjectKey::cluster(format!("n{number}")), Some(standing));
        }
        zones
    }

    #[track_caller]
    fn check(ready: usize, unready: usize, state: ZoneState, rate: f64) {
        let zone = Zone {
            ready,
            unready,
            last: None,
        };
        let config = Config::default();
        assert_eq!((zone.state(&config), zone.rate(&config)), (state, rate));
    }

    #[test]
    fn eviction_rate_falls_as_more_nodes_are_lost() {
        check(10, 0, ZoneState::Normal, 0.1);
        check(1, 2, ZoneState::Normal, 0.1);
        check(2, 3, ZoneState::PartialDisruption, 0.0);
        check(30, 30, ZoneState::Normal, 0.1);
        check(27, 33, ZoneState::PartialDisruption, 0.01);
        check(0, 1, ZoneState::FullDisruption, 0.1);
    }

    #[test]
    fn eviction_zone_evicts_one_node_at_a_time() {
        let (zones, config) = (zones(3, 2), Config::default());
        let at = Duration::from_secs;
        assert_eq!(zones.permit("z", at(100), &config), Permit::Now);
        assert_eq!(zones.permit("z", at(104), &config), Permit::In(at(6)));
        assert_eq!(zones.permit("z", at(110), &config), Permit::Now);
    }

    #[test]
    fn eviction_stops_when_no_node_is_ready() {
        let (zones, config) = (zones(1, 1), Config::default());
        let unready = NodeHealth {
            zone: "z".to_owned(),
            ready: false,
        };
        let ready = NodeHealth {
            ready: true,
            ..unready.clone()
        };
        let first = ObjectKey::cluster("n0");
        assert_eq!(zones.stands(&first, Some(unready.clone())), Shift::Zone);
        assert_eq!(zones.permit("z", Duration::ZERO, &config), Permit::Never);
        assert_eq!(zones.stands(&first, Some(unready)), Shift::None);
        assert_eq!(zones.stands(&first, Some(ready)), Shift::HeartbeatTracker);
        assert_eq!(zones.stands(&first, None), Shift::Zone);
        assert!(zones.is_all_lost());
    }
}

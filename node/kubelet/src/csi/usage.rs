//! Usage of drivers' volumes: requested about as often as upstream does, for `/stats/summary` and `/metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use node_plugin_api::csi::messages::{NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, UsageUnit};
use node_volume::{CsiSource, CsiVolume};
use serde_json::{Map, Value, json};

use super::manager::{Csi, call_text};
use super::places::VolumeKey;
use super::requests::Wanted;
use crate::managers::ManagerContext;
use crate::pods::uid;

/// Pause between two rounds, upstream's `volumeStatsAggPeriod`.
const ASK_AFTER: Duration = Duration::from_secs(60);
/// A figure of a volume, where the driver says it.
type Figure = fn(&Usage) -> Option<i64>;
/// Figures by claim: their names, what they are, and which they are.
const METRICS: [(&str, &str, Figure); 6] = [
    ("capacity_bytes", "Capacity in bytes of the volume", |usage| {
        usage.bytes.map(|own| own.total)
    }),
    (
        "available_bytes",
        "Number of available bytes in the volume",
        |usage| usage.bytes.map(|own| own.available),
    ),
    ("used_bytes", "Number of used bytes in the volume", |usage| {
        usage.bytes.map(|own| own.used)
    }),
    ("inodes", "Maximum number of inodes in the volume", |usage| {
        usage.inodes.map(|own| own.total)
    }),
    ("inodes_free", "Number of free inodes in the volume", |usage| {
        usage.inodes.map(|own| own.available)
    }),
    ("inodes_used", "Number of used inodes in the volume", |usage| {
        usage.inodes.map(|own| own.used)
    }),
];

/// Numbers of one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Amounts {
    available: i64,
    total: i64,
    used: i64,
}

/// Usage of a volume at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Usage {
    at: Timestamp,
    bytes: Option<Amounts>,
    inodes: Option<Amounts>,
}

/// A claim's volume that is shown to a pod.
#[derive(Debug, Clone)]
pub(super) struct ClaimedVolume {
    pub(super) pod: Arc<Pod>,
    pub(super) pod_uid: String,
    /// Namespace and name.
    pub(super) claim: (String, String),
    /// The PersistentVolume.
    pub(super) name: String,
    pub(super) wanted: Wanted,
}

/// A pod's volume that is shown.
#[derive(Debug, Clone)]
struct Shown {
    pod: Arc<Pod>,
    wanted: Wanted,
    /// The PersistentVolume, or the pod's name of its own volume.
    name: String,
    /// Namespace and name.
    claim: Option<(String, String)>,
    usage: Option<Usage>,
    is_measuring: bool,
}

impl Shown {
    fn key(&self) -> &VolumeKey {
        &self.wanted.key
    }
}

/// Volumes that are shown, by the pod's uid and its name of the volume.
#[derive(Debug, Default)]
pub(super) struct Usages {
    all: BTreeMap<(String, String), Shown>,
    /// Volumes that are watched for growth.
    growing: BTreeSet<VolumeKey>,
}

impl Usages {
    /// Reports whether no pod has a volume.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A pod has a volume.
    pub(super) fn add(&mut self, volume: &CsiVolume, wanted: &Wanted) {
        let claim = match &volume.source {
            CsiSource::Persistent(behind) => {
                let claim = behind.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
                claim.and_then(|claim| Some((claim.namespace.clone()?, claim.name.clone()?)))
            }
            CsiSource::Inline(_) => None,
        };
        let place = (uid(&volume.pod).to_owned(), volume.volume.clone());
        self.all.entry(place).or_insert_with(|| Shown {
            pod: volume.pod.clone(),
            wanted: wanted.clone(),
            name: volume.name().to_owned(),
            claim,
            usage: None,
            is_measuring: false,
        });
    }

    /// A pod has its volumes no more, but for those of these names.
    pub(super) fn remove(&mut self, pod: &str, but: &BTreeSet<String>) {
        self.all
            .retain(|(own, _), shown| own != pod || but.contains(&shown.name));
    }

    /// Volumes whose usage is not being read, which it is from then on.
    fn take_due(&mut self, has_usage: impl Fn(&str) -> bool) -> Vec<((String, String), Shown)> {
        let due = self
            .all
            .iter_mut()
            .filter(|(_, shown)| !shown.is_measuring && has_usage(&shown.key().driver));
        due.map(|(place, shown)| {
            shown.is_measuring = true;
            (place.clone(), shown.clone())
        })
        .collect()
    }

    fn answered(&mut self, place: &(String, String), usage: Option<Usage>) {
        if let Some(shown) = self.all.get_mut(place) {
            shown.is_measuring = false;
            shown.usage = usage.or(shown.usage);
        }
    }

    /// Claims' volumes of drivers that make volumes grow, each of one of its pods that write it.
    fn claimed(&self, expands: impl Fn(&str) -> bool) -> BTreeMap<VolumeKey, ClaimedVolume> {
        let own = self
            .all
            .iter()
            .filter(|(_, shown)| expands(&shown.key().driver) && !shown.wanted.is_read_only);
        own.filter_map(|((pod_uid, _), shown)| {
            let volume = ClaimedVolume {
                pod: shown.pod.clone(),
                pod_uid: pod_uid.clone(),
                claim: shown.claim.clone()?,
                name: shown.name.clone(),
                wanted: shown.wanted.clone(),
            };
            Some((shown.key().clone(), volume))
        })
        .collect()
    }

    /// Claimed volumes that are watched from then on, until they have grown.
    pub(super) fn take_claimed(&mut self, expands: impl Fn(&str) -> bool) -> Vec<ClaimedVolume> {
        let claimed = self.claimed(expands).into_iter();
        claimed
            .filter(|(key, _)| self.growing.insert(key.clone()))
            .map(|(_, volume)| volume)
            .collect()
    }

    /// A volume has grown, or need not.
    pub(super) fn has_grown(&mut self, volume: &ClaimedVolume) {
        self.growing.remove(&volume.wanted.key);
    }
}

impl Csi {
    /// Usage of a pod's volumes, as `/stats/summary` has it.
    pub(crate) fn usage_of(&self, pod: &str) -> Vec<Value> {
        let usages = self.usages.lock();
        let own = usages.all.iter().filter(|((uid, _), _)| uid == pod);
        own.filter_map(|((_, volume), shown)| Some(summary(volume, shown, shown.usage.as_ref()?)))
            .collect()
    }

    /// Writes the figures of claims.
    pub(crate) fn write_metrics(&self, out: &mut String) {
        let usages = self.usages.lock();
        // Of a volume of several pods once.
        let claims: BTreeMap<&(String, String), &Usage> = usages
            .all
            .values()
            .filter_map(|shown| Some((shown.claim.as_ref()?, shown.usage.as_ref()?)))
            .collect();
        write_claims(&claims, out);
    }

    async fn ask(&self, place: &(String, String), shown: &Shown) -> Option<Usage> {
        let driver = self.drivers.get(&shown.key().driver).ok()?;
        let request = NodeGetVolumeStatsRequest {
            volume_id: shown.key().handle.clone(),
            volume_path: driver.root.target(&place.0, &shown.name).display().to_string(),
            staging_target_path: String::new(),
        };
        match self.called(driver.client.stats(request)).await {
            Ok(answer) => Some(usage(&answer, self.runtime.now())),
            Err(status) => {
                let (volume, error) = (shown.key().unique_name(), call_text(&status));
                tracing::debug!(volume, error, "usage of a volume not known");
                None
            }
        }
    }
}

/// Writes the figures of these claims.
fn write_claims(claims: &BTreeMap<&(String, String), &Usage>, out: &mut String) {
    for (name, help, of) in METRICS {
        let values = claims
            .iter()
            .filter_map(|(claim, usage)| Some((claim, of(usage)?)));
        let mut values = values.peekable();
        if values.peek().is_some() {
            let _ = writeln!(out, "# HELP kubelet_volume_stats_{name} [ALPHA] {help}");
            let _ = writeln!(out, "# TYPE kubelet_volume_stats_{name} gauge");
        }
        for ((namespace, claim), value) in values {
            let labels = format!("namespace=\"{namespace}\",persistentvolumeclaim=\"{claim}\"");
            let _ = writeln!(out, "kubelet_volume_stats_{name}{{{labels}}} {value}");
        }
    }
}

/// Writes figures of one claim.
#[cfg(test)]
pub(crate) fn write_sample(out: &mut String) {
    let amounts = Some(Amounts {
        available: 1,
        total: 3,
        used: 2,
    });
    let usage = Usage {
        at: Timestamp::UNIX_EPOCH,
        bytes: amounts,
        inodes: amounts,
    };
    let claim = ("shop".to_owned(), "disk".to_owned());
    write_claims(&BTreeMap::from([(&claim, &usage)]), out);
}

/// Reads the usage of volumes from their drivers, for ever; calls none while there are no volumes.
pub(crate) async fn follow_usage(context: ManagerContext) {
    let csi = context.workers.csi.clone();
    loop {
        csi.changes.wait_for(|_| !csi.usages.lock().is_empty()).await;
        let has_usage = |driver: &str| csi.drivers.get(driver).is_ok_and(|own| own.abilities.has_stats);
        let due = csi.usages.lock().take_due(has_usage);
        for (place, shown) in due {
            let own = csi.clone();
            let asking = async move {
                let usage = own.ask(&place, &shown).await;
                own.usages.lock().answered(&place, usage);
            };
            csi.runtime.spawn("usage of a volume", asking).detach();
        }
        csi.runtime.sleep(ASK_AFTER).await;
    }
}

/// The last answer of each unit counts; nothing is negative.
fn usage(answer: &NodeGetVolumeStatsResponse, at: Timestamp) -> Usage {
    let of = |unit: UsageUnit| {
        let found = answer.usage.iter().rev().find(|usage| usage.unit() == unit)?;
        Some(Amounts {
            available: found.available.max(0),
            total: found.total.max(0),
            used: found.used.max(0),
        })
    };
    Usage {
        at,
        bytes: of(UsageUnit::Bytes),
        inodes: of(UsageUnit::Inodes),
    }
}

fn summary(volume: &str, shown: &Shown, usage: &Usage) -> Value {
    let at = usage.at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut own = Map::from_iter([("name".to_owned(), json!(volume)), ("time".to_owned(), json!(at))]);
    if let Some((namespace, name)) = &shown.claim {
        own.insert("pvcRef".to_owned(), json!({"name": name, "namespace": namespace}));
    }
    let names = [
        (usage.bytes, ["availableBytes", "capacityBytes", "usedBytes"]),
        (usage.inodes, ["inodesFree", "inodes", "inodesUsed"]),
    ];
    for (amounts, names) in names {
        let Some(amounts) = amounts else { continue };
        let values = [amounts.available, amounts.total, amounts.used];
        own.extend(
            names
                .into_iter()
                .zip(values)
                .map(|(name, value)| (name.to_owned(), json!(value))),
        );
    }
    Value::Object(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_plugin_api::csi::messages::VolumeUsage;

    #[test]
    fn usage_of_a_volume_is_said_as_upstream_does() {
        let of = |unit: UsageUnit, available: i64| VolumeUsage {
            available,
            total: 100,
            used: 40,
            unit: unit.into(),
        };
        let answer = NodeGetVolumeStatsResponse {
            usage: vec![of(UsageUnit::Bytes, 60), of(UsageUnit::Inodes, -1)],
            volume_condition: None,
        };
        let usage = usage(&answer, Timestamp::UNIX_EPOCH);
        let shown = Shown {
            pod: Arc::default(),
            wanted: Wanted::default(),
            name: "pv".to_owned(),
            claim: Some(("ns".to_owned(), "disk".to_owned())),
            usage: Some(usage),
            is_measuring: false,
        };
        let expected = json!({
            "name": "data", "time": "1970-01-01T00:00:00Z", "pvcRef": {"name": "disk", "namespace": "ns"},
            "availableBytes": 60, "capacityBytes": 100, "usedBytes": 40,
            "inodesFree": 0, "inodes": 100, "inodesUsed": 40,
        });
        assert_eq!(summary("data", &shown, &usage), expected);
        let nothing = super::usage(&NodeGetVolumeStatsResponse::default(), Timestamp::UNIX_EPOCH);
        assert_eq!((nothing.bytes, nothing.inodes), (None, None));
    }
}

//! ResourceClaims that pods of this node use: the pods of each, and the devices that its drivers have prepared. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::ResourceClaim;
use node_plugin_api::dra::messages::{Claim, Device};

/// Claims of a node, and of a namespace on it.
const CLAIMS_MAX: usize = 4_096;
const CLAIMS_OF_NAMESPACE_MAX: usize = CLAIMS_MAX / 4;
/// Weight of what drivers have answered for one claim, in bytes.
const CLAIM_WEIGHT_MAX: usize = 256 << 10;
/// Weight of all claims, in bytes: the checkpoint has room for it.
const WEIGHT_MAX: usize = 8 << 20;
/// Stands for what the node keeps of a device beside its texts, and of a text beside its bytes.
const DEVICE_WEIGHT: usize = 96;
const TEXT_WEIGHT: usize = 8;

/// A claim: its namespace, then its name.
pub(super) type ClaimKey = (String, String);

/// Claims to call a driver about, by its name.
pub(super) type Batches = BTreeMap<String, Vec<Claim>>;

/// A device that a driver has prepared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PreparedDevice {
    pub(super) pool: String,
    pub(super) device: String,
    pub(super) share_id: Option<String>,
    /// Requests of the claim that it belongs to; without any it belongs to all.
    pub(super) requests: Vec<String>,
    pub(super) cdi_ids: Vec<String>,
}

impl From<Device> for PreparedDevice {
    fn from(device: Device) -> Self {
        Self {
            pool: device.pool_name,
            device: device.device_name,
            share_id: device.share_id,
            requests: device.request_names,
            cdi_ids: device.cdi_device_ids,
        }
    }
}

impl PreparedDevice {
    fn texts(&self) -> impl Iterator<Item = &String> {
        let own = [&self.pool, &self.device].into_iter().chain(&self.share_id);
        own.chain(&self.requests).chain(&self.cdi_ids)
    }

    fn weight(&self) -> usize {
        let texts = self.texts().map(|text| text.len() + TEXT_WEIGHT);
        DEVICE_WEIGHT + texts.sum::<usize>()
    }

    /// Reports whether its texts have no control characters, which take seven bytes each on the disk.
    pub(super) fn is_plain(&self) -> bool {
        self.texts().all(|text| !text.contains(char::is_control))
    }

    /// Reports whether it belongs to a request; to the whole claim, where that is empty.
    pub(super) fn is_of(&self, request: &str) -> bool {
        request.is_empty() || self.requests.is_empty() || self.requests.iter().any(|own| own == request)
    }
}

/// A claim that pods use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ClaimInfo {
    pub(super) key: ClaimKey,
    pub(super) uid: String,
    /// Uids of the pods.
    pub(super) pods: BTreeSet<String>,
    /// Devices by driver, of all drivers that the claim is allocated of; `None` until a driver has prepared it.
    pub(super) drivers: BTreeMap<String, Option<Vec<PreparedDevice>>>,
    /// All drivers have prepared it since the agent has started.
    pub(super) prepared: bool,
    /// Its preparation is being taken back: no pod begins to use it.
    pub(super) unpreparing: bool,
}

impl ClaimInfo {
    /// An allocated claim without pods.
    ///
    /// # Errors
    /// Upstream's words for one that this node cannot prepare.
    pub(super) fn of(claim: &ResourceClaim) -> Result<Self, String> {
        let status = claim.status.as_ref();
        let allocation = status.and_then(|status| status.allocation.as_ref());
        let allocation = allocation.ok_or("not allocated")?;
        let devices = allocation.devices.as_ref();
        let results = devices.and_then(|devices| devices.results.as_ref());
        let results: Vec<_> = results.into_iter().flatten().collect();
        let drivers: BTreeSet<&str> = results.iter().map(|result| result.driver.as_str()).collect();
        for driver in &drivers {
            let own = results.iter().filter(|result| result.driver == **driver);
            let skipped: Vec<&[String]> = own
                .map(|result| result.skip_node_operations.as_deref().unwrap_or_default())
                .collect();
            if skips_any(&skipped) {
                // An alpha feature of upstream's 1.37, off by default.
                return Err("DRAOptionalNodeOperations feature gate is disabled on kubelet".to_owned());
            }
        }
        let meta = &claim.metadata;
        Ok(Self {
            key: (
                meta.namespace.clone().unwrap_or_default(),
                meta.name.clone().unwrap_or_default(),
            ),
            uid: meta.uid.clone().unwrap_or_default(),
            drivers: drivers
                .into_iter()
                .map(|driver| (driver.to_owned(), None))
                .collect(),
            ..Self::default()
        })
    }

    fn message(&self) -> Claim {
        Claim {
            namespace: self.key.0.clone(),
            uid: self.uid.clone(),
            name: self.key.1.clone(),
        }
    }

    fn weight(&self) -> usize {
        let own = self.uid.len() + self.key.0.len() + self.key.1.len();
        let pods: usize = self.pods.iter().map(|pod| pod.len() + TEXT_WEIGHT).sum();
        let drivers = self
            .drivers
            .iter()
            .map(|(driver, devices)| driver.len() + TEXT_WEIGHT + weight_of(devices.as_deref()));
        DEVICE_WEIGHT + own + pods + drivers.sum::<usize>()
    }

    /// Returns a driver that has not prepared it.
    pub(super) fn unanswered(&self) -> Option<&str> {
        let mut drivers = self.drivers.iter();
        let missing = drivers.find(|(_, devices)| devices.is_none());
        missing.map(|(driver, _)| driver.as_str())
    }

    /// Names of its devices in the Container Device Interface, for a request.
    pub(super) fn cdi_ids<'c>(&'c self, request: &'c str) -> impl Iterator<Item = &'c String> {
        let devices = self.drivers.values().flatten().flatten();
        let own = devices.filter(move |device| device.is_of(request));
        own.flat_map(|device| &device.cdi_ids)
    }
}

/// Weight of what a driver has answered for a claim.
fn weight_of(devices: Option<&[PreparedDevice]>) -> usize {
    devices.into_iter().flatten().map(PreparedDevice::weight).sum()
}

/// Reports whether all devices of a driver in a claim leave out a call, with the lists of what each leaves out.
fn skips_any(skipped: &[&[String]]) -> bool {
    const ALL: &str = "*";
    let named: BTreeSet<&String> = skipped.iter().copied().flatten().collect();
    named.into_iter().any(|call| {
        let mut lists = skipped.iter();
        lists.all(|own| own.iter().any(|other| other == call || other == ALL))
    })
}

/// All claims that pods of the node use.
#[derive(Debug, Default)]
pub(super) struct Claims {
    all: BTreeMap<ClaimKey, ClaimInfo>,
    weight: usize,
    /// Number of changes of what is saved.
    pub(super) generation: u64,
}

/// Claims whose preparation is to be taken back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unpreparing {
    pub(super) claims: Vec<ClaimKey>,
    pub(super) batches: Batches,
}

impl Claims {
    /// Adopts a claim that the agent before this one has written down.
    pub(super) fn found(&mut self, claim: ClaimInfo) {
        self.put(claim);
    }

    fn put(&mut self, claim: ClaimInfo) {
        self.weight += claim.weight();
        if let Some(before) = self.all.insert(claim.key.clone(), claim) {
            self.weight -= before.weight();
        }
    }

    fn change(&mut self, key: &ClaimKey, change: impl FnOnce(&mut ClaimInfo)) {
        if let Some(claim) = self.all.get_mut(key) {
            self.weight -= claim.weight();
            change(claim);
            self.weight += claim.weight();
        }
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ClaimInfo> {
        self.all.values()
    }

    /// Returns a claim.
    pub(super) fn get(&self, key: &ClaimKey) -> Option<&ClaimInfo> {
        self.all.get(key)
    }

    /// Checks that there is room for claims, all of one namespace: one namespace does not take that of the others.
    fn check_room(&self, wanted: &[ClaimInfo]) -> Result<(), String> {
        let fresh = wanted.iter().filter(|claim| !self.all.contains_key(&claim.key));
        let (fresh, all) = (fresh.count(), self.all.len());
        let namespace = wanted.first().map_or("", |claim| claim.key.0.as_str());
        let own = self.all.range((namespace.to_owned(), String::new())..);
        let own = own.take_while(|(key, _)| key.0 == namespace).count();
        if fresh > 0 && own + fresh > CLAIMS_OF_NAMESPACE_MAX {
            return Err(format!(
                "pods of namespace {namespace} use {own} ResourceClaims on the node, there is no room for more"
            ));
        }
        if fresh > 0 && all + fresh > CLAIMS_MAX {
            return Err(format!(
                "pods of the node use {all} ResourceClaims, there is no room for more"
            ));
        }
        Ok(())
    }

    /// A pod is to use these claims; returns what is to be prepared. Where one is refused the pod uses none. Words are upstream's.
    pub(super) fn reserve(&mut self, pod: &str, wanted: Vec<ClaimInfo>) -> Result<Batches, String> {
        self.check_room(&wanted)?;
        for claim in &wanted {
            let Some(known) = self.all.get(&claim.key) else {
                continue;
            };
            let name = &claim.key.1;
            if known.uid != claim.uid {
                return Err(format!(
                    "old ResourceClaim with same name {name} and different UID {} still exists (previous pod force-deleted?!)",
                    known.uid
                ));
            }
            if known.unpreparing {
                return Err(format!("ResourceClaim {name} is being unprepared"));
            }
        }
        let mut batches = Batches::new();
        for claim in wanted {
            let key = claim.key.clone();
            if !self.all.contains_key(&key) {
                self.put(claim);
            }
            self.change(&key, |known| {
                known.pods.insert(pod.to_owned());
            });
            let Some(known) = self.all.get(&key).filter(|known| !known.prepared) else {
                continue;
            };
            for driver in known.drivers.keys() {
                batches.entry(driver.clone()).or_default().push(known.message());
            }
        }
        self.generation += 1;
        Ok(batches)
    }

    /// Sets the devices of a claim that a driver has prepared, in place of those of an earlier answer.
    ///
    /// # Errors
    /// There is no room for them, or the claim is used no more.
    pub(super) fn prepared_by(
        &mut self,
        driver: &str,
        claim: &Claim,
        devices: Vec<PreparedDevice>,
    ) -> Result<(), String> {
        let key = (claim.namespace.clone(), claim.name.clone());
        let known = self.all.get(&key).filter(|known| known.uid == claim.uid);
        let Some(known) = known else {
            return Err(format!(
                "internal error: unable to get claim info for ResourceClaim {} in namespace {}",
                claim.name, claim.namespace
            ));
        };
        let before = known.drivers.get(driver).and_then(Option::as_deref);
        let (weight, before) = (weight_of(Some(&devices)), weight_of(before));
        let of_claim = known.weight() - before + weight;
        if of_claim > CLAIM_WEIGHT_MAX || self.weight - before + weight > WEIGHT_MAX {
            return Err(format!(
                "no room for what DRA driver {driver} has answered for ResourceClaim {}",
                claim.name
            ));
        }
        self.change(&key, |known| {
            known.drivers.insert(driver.to_owned(), Some(devices));
        });
        self.generation += 1;
        Ok(())
    }

    /// All drivers have prepared these claims.
    pub(super) fn all_prepared(&mut self, keys: &[ClaimKey]) {
        for key in keys {
            self.change(key, |claim| claim.prepared = true);
        }
    }

    /// Reports whether a pod uses a claim of this name that all of its drivers have prepared, now or for an earlier agent.
    pub(super) fn has_devices(&self, pod: &str, key: &ClaimKey) -> bool {
        let known = self.all.get(key);
        known.is_some_and(|claim| claim.pods.contains(pod) && claim.unanswered().is_none())
    }

    /// Names of the claims that a pod uses, all of one namespace.
    pub(super) fn of_pod(&self, pod: &str) -> Vec<ClaimKey> {
        let own = self.all.values().filter(|claim| claim.pods.contains(pod));
        own.map(|claim| claim.key.clone()).collect()
    }

    /// A pod uses its claims no more. Those of which it was the last are to be taken back, and are kept until
    /// [`Self::unprepared`].
    pub(super) fn begin_unprepare(&mut self, pod: &str) -> Unpreparing {
        let mut begun = Unpreparing::default();
        for key in self.of_pod(pod) {
            self.change(&key, |claim| {
                if claim.pods.len() > 1 {
                    claim.pods.remove(pod);
                    return;
                }
                claim.unpreparing = true;
                for driver in claim.drivers.keys() {
                    let batch = begun.batches.entry(driver.clone()).or_default();
                    batch.push(claim.message());
                }
                begun.claims.push(key.clone());
            });
            self.generation += 1;
        }
        begun
    }

    /// The preparation of these claims was taken back.
    pub(super) fn unprepared(&mut self, keys: &[ClaimKey]) {
        for key in keys {
            if let Some(claim) = self.all.remove(key) {
                self.weight -= claim.weight();
                self.generation += 1;
            }
        }
    }

    /// Uids of pods that use claims and are not known.
    pub(super) fn orphans(&self, is_known: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let pods = self.all.values().flat_map(|claim| &claim.pods);
        pods.filter(|pod| !is_known(pod)).cloned().collect()
    }

    /// Numbers of prepared claims, by driver and of all.
    pub(super) fn in_use(&self) -> (BTreeMap<&str, usize>, usize) {
        let mut by_driver = BTreeMap::new();
        let prepared = self.all.values().filter(|claim| claim.prepared);
        let mut count = 0;
        for claim in prepared {
            count += 1;
            for driver in claim.drivers.keys() {
                *by_driver.entry(driver.as_str()).or_default() += 1;
            }
        }
        (by_driver, count)
    }

    /// Weight of all, in bytes.
    #[cfg(test)]
    pub(super) fn weight(&self) -> usize {
        self.weight
    }
}

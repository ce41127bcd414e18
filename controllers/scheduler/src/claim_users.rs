//! Pods in the queue by the claims of devices that they name.

use crate::pod::{DeviceClaimName, PodInfo};
use machinery_meta::ObjectKey;
use std::collections::{BTreeSet, HashMap};

/// Claims of a pod that are filed. A pod may name as many as it likes: one with more is looked at on every change of a
/// claim in its namespace.
const MAX_FILED: usize = 64;

/// The index. Pods are filed when they come, and taken out as they came.
#[derive(Debug, Default)]
pub(crate) struct ClaimUsers {
    users: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// Pods with more claims than are filed.
    many: BTreeSet<ObjectKey>,
}

impl ClaimUsers {
    /// Files a pod that comes, or takes out one that goes.
    pub(crate) fn file(&mut self, pod: &PodInfo, comes: bool) {
        if !pod.has_device_claims() {
            return;
        }
        let claims = claims_of(pod);
        if claims.len() > MAX_FILED {
            match comes {
                true => drop(self.many.insert(pod.key.clone())),
                false => drop(self.many.remove(&pod.key)),
            }
            return;
        }
        for claim in claims {
            if comes {
                self.users.entry(claim).or_default().insert(pod.key.clone());
            } else if let Some(pods) = self.users.get_mut(&claim) {
                pods.remove(&pod.key);
                if pods.is_empty() {
                    self.users.remove(&claim);
                }
            }
        }
    }

    /// Pods that name the claim, and those with many claims that may.
    pub(crate) fn of(&self, claim: &ObjectKey) -> Vec<ObjectKey> {
        let users = self.users.get(claim).into_iter().flatten();
        let many = self.many.iter().filter(|pod| pod.namespace == claim.namespace);
        users.chain(many).cloned().collect()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.users.is_empty() && self.many.is_empty()
    }
}

fn claims_of(pod: &PodInfo) -> BTreeSet<ObjectKey> {
    let named = pod.device_claims().into_iter().filter_map(|own| match own {
        DeviceClaimName::Named(name) | DeviceClaimName::Made(name) => Some(name),
        DeviceClaimName::Unneeded | DeviceClaimName::Awaited | DeviceClaimName::Unknown(_) => None,
    });
    named
        .map(|name| ObjectKey::new(&*pod.key.namespace, &*name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::make_pod;
    use serde_json::{Value, json};

    fn pod(name: &str, claims: usize) -> std::sync::Arc<PodInfo> {
        let claim = |at: usize| json!({"name": format!("c-{at}"), "resourceClaimName": format!("x-{at}")});
        let claims: Vec<Value> = (0..claims).map(claim).collect();
        make_pod(name, json!({"resourceClaims": claims}))
    }

    #[test]
    fn pods_are_found_by_their_claims_until_they_go() {
        let mut users = ClaimUsers::default();
        let all = [
            pod("one", 1),
            pod("two", 2),
            pod("many", MAX_FILED + 1),
            pod("none", 0),
        ];
        all.iter().for_each(|own| users.file(own, true));
        let of = |users: &ClaimUsers, claim: &str| -> Vec<String> {
            let key = ObjectKey::new(&*all[0].key.namespace, claim);
            users.of(&key).iter().map(|own| own.name.to_string()).collect()
        };
        assert_eq!(of(&users, "x-0"), ["one", "two", "many"]);
        assert_eq!(of(&users, "x-1"), ["two", "many"]);
        assert_eq!(of(&users, "other"), ["many"]);
        assert_eq!(users.of(&ObjectKey::new("elsewhere", "x-0")), []);
        all.iter().for_each(|own| users.file(own, false));
        assert!(users.is_empty());
    }
}

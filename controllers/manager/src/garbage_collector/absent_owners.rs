//! Owners that were requested and are not there, or that were seen to go. A uid is given once, so what is absent stays so,
//! until what the server stores is restored from a backup: a store that lists again ends what is known of its kind. An owner of a
//! kind without a store stays, as all does upstream.

use super::node::Node;
use machinery_client::ApiResource;
use machinery_meta::{OwnerRef, Uid, Word};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of remembered owners, as upstream; the oldest goes first.
const REMEMBERED_MAX: usize = 500;

/// Claim of a reference, and its place: another that says the same uid of another object is another claim.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    namespace: Box<str>,
    api_version: Word,
    kind: Word,
    name: Box<str>,
    uid: Uid,
}

/// The owners.
#[derive(Debug, Default)]
pub(super) struct AbsentOwners(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    all: BTreeSet<Arc<Claim>>,
    by_age: VecDeque<Arc<Claim>>,
    /// By group and kind.
    forgotten: BTreeMap<(Box<str>, Box<str>), Epoch>,
    last: Epoch,
}

/// Time at which what was known of a kind was forgotten last, counted in such times of all kinds. Findings of another
/// epoch may be outdated.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Epoch(u64);

impl Claim {
    fn of(owner: &OwnerRef, namespace: &str) -> Self {
        Self {
            namespace: namespace.into(),
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        }
    }
}

impl AbsentOwners {
    /// Remembers an owner as a reference names it; the namespace is empty for cluster-scoped kinds.
    pub(super) fn add(&self, owner: &OwnerRef, namespace: &str) {
        self.add_claim(Claim::of(owner, namespace));
    }

    /// Remembers an object that is gone.
    pub(super) fn add_node(&self, node: &Node) {
        let header = &node.header;
        self.add_claim(Claim {
            namespace: header.key.namespace.as_str().into(),
            api_version: node.resource.api_version().into(),
            kind: Word::of(&node.resource.kind),
            name: header.key.name.as_str().into(),
            uid: header.uid.clone(),
        });
    }

    fn add_claim(&self, claim: Claim) {
        let claim = Arc::new(claim);
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !own.all.insert(claim.clone()) {
            return;
        }
        own.by_age.push_back(claim);
        if own.by_age.len() > REMEMBERED_MAX
            && let Some(oldest) = own.by_age.pop_front()
        {
            own.all.remove(&oldest);
        }
    }

    /// Forgets what is of this kind, in whatever version. Its store lists again: owners may be there again.
    pub(super) fn forget(&self, resource: &ApiResource) {
        let is_of_another =
            |claim: &Claim| *claim.kind != *resource.kind || group_of(&claim.api_version) != resource.group;
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        own.all.retain(|claim| is_of_another(claim));
        own.by_age.retain(|claim| is_of_another(claim));
        let last = Epoch(own.last.0 + 1);
        own.last = last;
        let kind = (resource.group.as_ref().into(), resource.kind.as_ref().into());
        own.forgotten.insert(kind, last);
    }

    /// The epoch of what is found about these owners.
    pub(super) fn epoch(&self, owners: &[OwnerRef]) -> Epoch {
        let own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_kind = |owner: &OwnerRef| {
            let kind = (group_of(&owner.api_version).into(), (*owner.kind).into());
            own.forgotten.get(&kind).copied()
        };
        owners.iter().filter_map(of_kind).max().unwrap_or_default()
    }

    /// Reports whether an owner is known to be absent, be it cluster-scoped or of the dependent's namespace.
    pub(super) fn has(&self, owner: &OwnerRef, namespace: &str) -> bool {
        let own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A reference has no namespace: the owner may be of either kind.
        own.all.contains(&Claim::of(owner, "")) || own.all.contains(&Claim::of(owner, namespace))
    }
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(number: usize) -> OwnerRef {
        OwnerRef {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: "p".into(),
            uid: Uid(number.to_string()),
            ..OwnerRef::default()
        }
    }

    #[test]
    fn absent_cluster_scoped_owners_are_absent_for_every_namespace() {
        let absent = AbsentOwners::default();
        absent.add(&owner(0), "");
        assert!(absent.has(&owner(0), "n") && absent.has(&owner(0), "") && !absent.has(&owner(1), "n"));
    }

    #[test]
    fn absent_owners_of_a_kind_are_forgotten_alone() {
        let absent = AbsentOwners::default();
        let pod = owner(0);
        let [deployment, of_another_group] = ["apps/v1beta2", "example.com/v1"].map(|version| OwnerRef {
            api_version: version.into(),
            kind: "Deployment".into(),
            ..owner(1)
        });
        let all = [&pod, &deployment, &of_another_group];
        all.iter().for_each(|owner| absent.add(owner, "n"));
        let before = all.map(|owner| absent.epoch(std::slice::from_ref(owner)));
        let both = absent.epoch(&[pod.clone(), deployment.clone()]);
        absent.forget(&ApiResource::of::<k8s_openapi::api::apps::v1::Deployment>());
        assert_eq!(all.map(|owner| absent.has(owner, "n")), [true, false, true]);
        let after = all.map(|owner| absent.epoch(std::slice::from_ref(owner)));
        assert_eq!([0, 1, 2].map(|at| before[at] == after[at]), [true, false, true]);
        assert!(absent.epoch(&[pod.clone(), deployment.clone()]) != both);
        assert_eq!(absent.0.lock().unwrap().by_age.len(), 2);
    }

    #[test]
    fn absent_owners_are_remembered_by_all_that_was_claimed() {
        let absent = AbsentOwners::default();
        absent.add(&owner(0), "n");
        assert!(absent.has(&owner(0), "n"));
        let other = |change: fn(&mut OwnerRef)| {
            let mut other = owner(0);
            change(&mut other);
            absent.has(&other, "n")
        };
        assert!(!other(|own| own.name = "q".into()) && !other(|own| own.kind = "Node".into()));
        assert!(!other(|own| own.api_version = "v2".into()) && !absent.has(&owner(0), "m"));
        (0..REMEMBERED_MAX).for_each(|number| absent.add(&owner(number), "n"));
        assert!(absent.has(&owner(0), "n"), "it was there already");
        absent.add(&owner(REMEMBERED_MAX), "n");
        assert!(!absent.has(&owner(0), "n") && absent.has(&owner(1), "n"));
        let own = absent.0.lock().unwrap();
        assert_eq!(
            (own.all.len(), own.by_age.len()),
            (REMEMBERED_MAX, REMEMBERED_MAX)
        );
    }
}

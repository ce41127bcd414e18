//! Disks that pods on one node cannot share, but for reading in some kinds.
//!
//! A tenant names as many as an object has room for: those of two pods are compared by a lookup of each one of the fewer.

use crate::object::{RbdDisk, Volume};
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DiskKind {
    Gce,
    Aws,
    Iscsi,
    Rbd,
}

/// Disks of one pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disks {
    /// In order, each once: the hash of its kind, its name and (of Ceph, for each monitor) the address under which it is reached.
    /// The last bit says that the pod writes it.
    all: Box<[u64]>,
}

/// The bit of a disk that is written.
const WRITES: u64 = 1;

/// The hash without that bit.
fn name_of(one: u64) -> u64 {
    one & !WRITES
}

/// No client outside of this process finds names of one hash.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Disks {
    /// Disks among these volumes.
    pub fn of(volumes: &[Volume]) -> Self {
        let mut all: Vec<u64> = Vec::new();
        let mut add = |kind: DiskKind, name: (&str, &str), monitor: &str, read_only: bool| {
            all.push(KEYS.hash_one((kind, name, monitor)) & !WRITES | u64::from(!read_only));
        };
        for volume in volumes {
            if let Some(own) = &volume.gce_persistent_disk {
                add(DiskKind::Gce, (&own.pd_name, ""), "", own.read_only);
            } else if let Some(own) = &volume.aws_elastic_block_store {
                add(DiskKind::Aws, (&own.volume_id, ""), "", false);
            } else if let Some(own) = &volume.iscsi {
                add(DiskKind::Iscsi, (&own.iqn, ""), "", own.read_only);
            } else if let Some(RbdDisk {
                monitors,
                pool,
                image,
                read_only,
            }) = &volume.rbd
            {
                let each = monitors.iter();
                each.for_each(|monitor| add(DiskKind::Rbd, (pool, image), monitor, *read_only));
            }
        }
        // One that is written stands before the same one that is read.
        all.sort_unstable_by_key(|one| (name_of(*one), one & WRITES == 0));
        all.dedup_by_key(|one| name_of(*one));
        Self { all: all.into() }
    }

    /// Reports whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Reports whether both have a disk that one of them writes.
    pub fn conflict_with(&self, other: &Self) -> bool {
        let (few, many) = self.fewer_first(other);
        few.all.iter().any(|one| {
            let found = many
                .all
                .binary_search_by_key(&name_of(*one), |other| name_of(*other));
            found.is_ok_and(|at| (one | many.all[at]) & WRITES != 0)
        })
    }

    /// Comparisons of a look for a conflict, at most.
    pub fn comparisons(&self, other: &Self) -> usize {
        let (few, many) = self.fewer_first(other);
        let each = usize::BITS - many.all.len().leading_zeros();
        few.all.len().saturating_mul(each as usize)
    }

    fn fewer_first<'a>(&'a self, other: &'a Self) -> (&'a Self, &'a Self) {
        if self.all.len() <= other.all.len() {
            (self, other)
        } else {
            (other, self)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn disks(volumes: &Value) -> Disks {
        let volumes: Vec<Volume> = serde_json::from_value(volumes.clone()).unwrap();
        Disks::of(&volumes)
    }

    fn rbd(monitors: &[&str], read_only: bool) -> Value {
        json!({"name": "v", "rbd": {"monitors": monitors, "pool": "p", "image": "i", "readOnly": read_only}})
    }

    #[track_caller]
    fn check(one: Value, other: Value, expected: bool) {
        let (one, other) = (disks(&one), disks(&other));
        assert_eq!(one.conflict_with(&other), expected);
        assert_eq!(other.conflict_with(&one), expected);
    }

    #[test]
    fn disk_that_one_pod_writes_is_not_shared() {
        let gce = |name: &str, read_only: bool| json!({"name": "v", "gcePersistentDisk": {"pdName": name, "readOnly": read_only}});
        check(json!([gce("a", false)]), json!([gce("a", true)]), true);
        check(json!([gce("a", true)]), json!([gce("a", true)]), false);
        check(
            json!([gce("a", true), gce("a", false)]),
            json!([gce("a", true)]),
            true,
        );
        check(json!([gce("a", false)]), json!([gce("b", false)]), false);
        let aws = json!([{"name": "v", "awsElasticBlockStore": {"volumeID": "a", "readOnly": true}}]);
        check(aws.clone(), aws, true);
        check(
            json!([rbd(&["x", "y"], false)]),
            json!([rbd(&["y", "z"], true)]),
            true,
        );
        check(json!([rbd(&["x"], false)]), json!([rbd(&["z"], false)]), false);
        check(json!([rbd(&[], false)]), json!([rbd(&[], false)]), false);
        check(json!([]), json!([rbd(&["x"], false)]), false);
    }

    /// Each one of the fewer is looked up among the others: many monitors of two pods are no product.
    #[test]
    fn disks_of_two_pods_are_compared_in_few_steps() {
        let names: Vec<String> = (0..2_000).map(|number| format!("m{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (one, other) = (
            disks(&json!([rbd(&names[..1_000], false)])),
            disks(&json!([rbd(&names[1_000..], false)])),
        );
        assert_eq!(one.comparisons(&other), 10_000);
        assert_eq!(one.comparisons(&Disks::default()), 0);
    }
}

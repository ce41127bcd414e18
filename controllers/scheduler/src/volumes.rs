//! Claims, volumes and storage classes, as far as they decide where a pod may go.

use crate::object::NodeSelector;
use machinery_meta::ObjectKey;
use std::collections::HashMap;

/// A claim's scheduling fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    /// The volume it has or asks for; may be empty.
    pub volume: Box<str>,
    pub class: Box<str>,
    /// Claim and volume have found each other, and both say so.
    pub bound: bool,
    /// Its volume went away.
    pub lost: bool,
    pub deleting: bool,
    /// The uid of the pod it was made for, if it was made for one.
    pub owner: Box<str>,
}

/// A volume's node affinity; `None` for one that any node may have.
pub type VolumeNodes = Option<NodeSelector>;

/// What is known of each; the volumes and the classes by name.
#[derive(Debug, Default)]
pub struct Volumes {
    claims: HashMap<ObjectKey, Claim>,
    volumes: HashMap<Box<str>, VolumeNodes>,
    /// Whether its claims wait for a pod before they are bound.
    classes: HashMap<Box<str>, bool>,
}

impl Volumes {
    /// A claim changed; `None` when it is gone. Says whether that matters here.
    pub fn set_claim(&mut self, key: &ObjectKey, claim: Option<Claim>) -> bool {
        replace(&mut self.claims, key.clone(), claim)
    }

    /// A volume changed.
    pub fn set_volume(&mut self, name: &str, nodes: Option<VolumeNodes>) -> bool {
        replace(&mut self.volumes, name.into(), nodes)
    }

    /// A storage class changed.
    pub fn set_class(&mut self, name: &str, waits: Option<bool>) -> bool {
        replace(&mut self.classes, name.into(), waits)
    }

    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Claim> {
        self.claims.get(&ObjectKey::new(namespace, name))
    }

    pub fn volume(&self, name: &str) -> Option<&VolumeNodes> {
        self.volumes.get(name)
    }

    /// The claim is bound once a pod that uses it has its node.
    pub fn waits_for_pod(&self, claim: &Claim) -> bool {
        claim.volume.is_empty() && self.classes.get(&claim.class).copied().unwrap_or(false)
    }
}

fn replace<K: Eq + std::hash::Hash, V: PartialEq>(all: &mut HashMap<K, V>, key: K, value: Option<V>) -> bool {
    match value {
        Some(value) if all.get(&key) == Some(&value) => false,
        Some(value) => {
            all.insert(key, value);
            true
        }
        None => all.remove(&key).is_some(),
    }
}

//! Bundles and their anchors, within a bound.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use machinery_semantics::selectors;
use machinery_x509::{pem_blocks, pem_text};
use node_volume::{TrustAnchors, VolumeError};
use sha2::{Digest, Sha256};

/// Anchors of all bundles together: as much as 32 of the largest bundles.
pub(super) const BYTES_MAX: usize = 32 << 20;
pub(super) const BUNDLES_MAX: usize = 10_000;
/// A longer label selector is refused, as upstream's kubelet does.
const SELECTOR_BYTES_MAX: usize = 100 << 10;

/// A certificate with its place in the order of this agent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Anchor {
    place: [u8; 32],
    der: Arc<[u8]>,
}

#[derive(Debug)]
struct Bundle {
    signer: String,
    labels: BTreeMap<String, String>,
    /// `None` where the room of all bundles is full.
    anchors: Option<Vec<Anchor>>,
    bytes: usize,
}

/// Name and signer of a bundle that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) name: String,
    pub(super) signer: String,
}

/// The bundles by name.
#[derive(Debug)]
pub(super) struct Store {
    /// Chance of this agent: no program shall rely on the order of anchors in a file.
    seed: u64,
    bundles: BTreeMap<String, Bundle>,
    bytes: usize,
    /// Bundles beyond the bound on their number.
    left_out: BTreeSet<String>,
    bytes_max: usize,
    bundles_max: usize,
}

impl Store {
    pub(super) fn new(seed: u64) -> Self {
        Self::bounded(seed, BYTES_MAX, BUNDLES_MAX)
    }

    pub(super) fn bounded(seed: u64, bytes_max: usize, bundles_max: usize) -> Self {
        Self {
            seed,
            bundles: BTreeMap::new(),
            bytes: 0,
            left_out: BTreeSet::new(),
            bytes_max,
            bundles_max,
        }
    }

    /// Takes these for all there are, beside those of the names in `unread`, which are as they were. Every other bundle
    /// that was or is there counts as changed.
    pub(super) fn replace(
        &mut self,
        bundles: Vec<ClusterTrustBundle>,
        unread: &BTreeSet<&str>,
    ) -> Vec<Changed> {
        let gone: Vec<String> = self
            .bundles
            .keys()
            .filter(|name| !unread.contains(name.as_str()))
            .cloned()
            .collect();
        let mut changed: Vec<Changed> = gone.iter().flat_map(|name| self.remove(name)).collect();
        self.left_out.retain(|name| unread.contains(name.as_str()));
        let now = bundles.into_iter().flat_map(|bundle| self.set(bundle));
        changed.extend(now);
        changed
    }

    pub(super) fn set(&mut self, bundle: ClusterTrustBundle) -> Vec<Changed> {
        let name = bundle.metadata.name.unwrap_or_default();
        let mut changed = self.remove(&name);
        let signer = bundle.spec.signer_name.unwrap_or_default();
        let own = Changed {
            name: name.clone(),
            signer: signer.clone(),
        };
        if !changed.contains(&own) {
            changed.push(own);
        }
        if self.bundles.len() >= self.bundles_max {
            // As many names again are remembered; more would be no bound.
            if self.left_out.len() < self.bundles_max {
                self.left_out.insert(name);
            }
            return changed;
        }
        let anchors = self.anchors_of(&bundle.spec.trust_bundle);
        let bytes: usize = anchors.iter().map(|anchor| anchor.der.len()).sum();
        let fits = self.bytes + bytes <= self.bytes_max;
        let bytes = if fits { bytes } else { 0 };
        self.bytes += bytes;
        let kept = Bundle {
            signer,
            labels: bundle.metadata.labels.unwrap_or_default(),
            anchors: fits.then_some(anchors),
            bytes,
        };
        self.bundles.insert(name, kept);
        changed
    }

    pub(super) fn remove(&mut self, name: &str) -> Vec<Changed> {
        self.left_out.remove(name);
        let Some((name, gone)) = self.bundles.remove_entry(name) else {
            return Vec::new();
        };
        self.bytes -= gone.bytes;
        vec![Changed {
            name,
            signer: gone.signer,
        }]
    }

    fn anchors_of(&self, text: &str) -> Vec<Anchor> {
        let anchor = |der: Vec<u8>| {
            let mut digest = Sha256::new();
            digest.update(self.seed.to_le_bytes());
            digest.update(&der);
            Anchor {
                place: digest.finalize().into(),
                der: der.into(),
            }
        };
        let blocks = pem_blocks(text.as_bytes()).into_iter();
        blocks.map(|block| anchor(block.content)).collect()
    }

    /// Anchors as PEM, each once.
    pub(super) fn anchors(&self, wanted: &TrustAnchors) -> Result<Arc<[u8]>, VolumeError> {
        let (found, optional) = match wanted {
            TrustAnchors::Named { name, optional } => (self.named(name)?, *optional),
            TrustAnchors::Signed {
                signer,
                selector,
                optional,
            } => (self.signed(signer, selector.as_ref())?, *optional),
        };
        if found.is_empty() && !optional {
            return Err(VolumeError::Source(missing(wanted)));
        }
        let mut anchors: BTreeSet<&Anchor> = BTreeSet::new();
        for bundle in found {
            anchors.extend(bundle.anchors.as_ref().ok_or_else(|| self.full())?);
        }
        let text: String = anchors
            .into_iter()
            .map(|anchor| pem_text("CERTIFICATE", &anchor.der))
            .collect();
        Ok(text.into_bytes().into())
    }

    fn named(&self, name: &str) -> Result<Vec<&Bundle>, VolumeError> {
        match self.bundles.get(name) {
            Some(bundle) => Ok(vec![bundle]),
            None if self.is_incomplete() && (self.left_out.contains(name) || self.is_overflowing()) => {
                Err(self.full())
            }
            None => Ok(Vec::new()),
        }
    }

    fn signed(&self, signer: &str, selector: Option<&LabelSelector>) -> Result<Vec<&Bundle>, VolumeError> {
        let compiled = selectors::from_api(selector)
            .map_err(|error| VolumeError::Invalid(format!("while parsing label selector: {error}")))?;
        let Some(compiled) = compiled else {
            return Ok(Vec::new());
        };
        let length = selector.map_or(0, length_of);
        if length > SELECTOR_BYTES_MAX {
            return Err(VolumeError::Invalid(format!(
                "label selector length ({length}) is larger than {SELECTOR_BYTES_MAX}"
            )));
        }
        // Any of those left out may be one of the signer's.
        if self.is_incomplete() {
            return Err(self.full());
        }
        let of_signer = self.bundles.values().filter(|bundle| bundle.signer == signer);
        Ok(of_signer
            .filter(|bundle| compiled.matches_with(|key| bundle.labels.get(key).map(String::as_str)))
            .collect())
    }

    fn is_incomplete(&self) -> bool {
        !self.left_out.is_empty()
    }

    /// Reports whether more bundles are left out than there are names remembered of.
    fn is_overflowing(&self) -> bool {
        self.left_out.len() >= self.bundles_max
    }

    fn full(&self) -> VolumeError {
        VolumeError::Source(format!(
            "too many ClusterTrustBundles in the cluster: a node keeps {} bytes of {} of them",
            self.bytes_max, self.bundles_max
        ))
    }
}

/// Upstream's words.
fn missing(wanted: &TrustAnchors) -> String {
    match wanted {
        TrustAnchors::Named { name, .. } => format!(
            "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"{name}\" not found"
        ),
        TrustAnchors::Signed { .. } => {
            "combination of signerName and labelSelector matched zero ClusterTrustBundles".to_owned()
        }
    }
}

/// Bytes of a selector's keys and values.
fn length_of(selector: &LabelSelector) -> usize {
    let labels = selector.match_labels.iter().flatten();
    let labels: usize = labels.map(|(key, value)| key.len() + value.len() + 2).sum();
    let expressions = selector.match_expressions.iter().flatten();
    let expressions: usize = expressions
        .map(|own| {
            let values = own.values.iter().flatten().map(|value| value.len() + 1);
            own.key.len() + own.operator.len() + values.sum::<usize>()
        })
        .sum();
    labels + expressions
}

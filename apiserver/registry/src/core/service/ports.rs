//! Node ports: one bitmap of the range, a `RangeAllocation` as upstream keeps it, changed with the service.

use super::{needs_health_port, needs_node_ports};
use crate::context::RequestContext;
use crate::error::RegistryError;
use crate::metadata;
use crate::registry::Registry;
use crate::strategy::Change;
use apiserver_storage::{Key, ReadAt, Record, Write};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use machinery_meta::{FieldError, FieldPath, GroupKind, ObjectHeader, ObjectKey};
use machinery_schema::{Mut, Ref, Strictness, Tree, decode_json, encode_split};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Upstream's `--service-node-port-range`.
const FIRST: i64 = 30000;
const LAST: i64 = 32767;
/// Where upstream keeps the bitmap.
const KEY: &str = "/registry/ranges/servicenodeports";
const BITMAP_BYTES: usize = 346;

/// Takes new node ports, gives back those no longer used.
pub(super) async fn allocate(
    ctx: &RequestContext,
    registry: &Registry,
    change: Change<'_>,
    service: &mut Tree,
) -> Result<Vec<Write>, RegistryError> {
    let before = match change {
        Change::Create => BTreeSet::new(),
        Change::Update { old } => held(old),
        Change::Delete => held(service.root()),
    };
    let deleting = matches!(change, Change::Delete);
    if before.is_empty() && (deleting || !wants(service.root())) {
        return Ok(Vec::new());
    }
    let mut range = PortRange::read(registry).await?;
    if deleting {
        before.iter().for_each(|port| range.set(*port, false));
        return range.write();
    }
    let mut picker = Picker {
        ctx,
        range: &mut range,
        before: &before,
        now: BTreeSet::new(),
        errors: Vec::new(),
    };
    picker.assign(service);
    let (now, errors) = (picker.now, picker.errors);
    if !errors.is_empty() {
        let kind = GroupKind {
            group: String::new(),
            kind: "Service".into(),
        };
        return Err(RegistryError::Invalid {
            kind,
            name: metadata::name(service).to_owned(),
            errors,
        });
    }
    before.difference(&now).for_each(|port| range.set(*port, false));
    if before == now {
        return Ok(Vec::new());
    }
    range.write()
}

fn wants(service: Ref<'_>) -> bool {
    needs_node_ports(service) || needs_health_port(service)
}

fn number(value: Ref<'_>, name: &str) -> i64 {
    value.get(name).and_then(Ref::as_i64).unwrap_or(0)
}

/// The node ports a stored service has.
fn held(service: Ref<'_>) -> BTreeSet<i64> {
    let Some(spec) = service.get("spec") else {
        return BTreeSet::new();
    };
    let ports = spec.list("ports").map(|port| number(port, "nodePort"));
    ports
        .chain([number(spec, "healthCheckNodePort")])
        .filter(|port| *port != 0)
        .collect()
}

/// Gives ports their numbers, one after the other.
struct Picker<'a> {
    ctx: &'a RequestContext,
    range: &'a mut PortRange,
    before: &'a BTreeSet<i64>,
    now: BTreeSet<i64>,
    errors: Vec<FieldError>,
}

impl Picker<'_> {
    fn assign(&mut self, service: &mut Tree) {
        let root = service.root();
        let (nodes, health) = (needs_node_ports(root), needs_health_port(root));
        let spec_path = FieldPath::new("spec");
        service.with(&["spec"], |mut spec| {
            if nodes {
                let mut known: Vec<(i64, String, i64)> = Vec::new();
                let mut at = 0;
                spec.each("ports", |port| {
                    self.one(port, &spec_path.child("ports").index(at), &mut known);
                    at += 1;
                });
            }
            if health {
                let asked = number(spec.as_ref(), "healthCheckNodePort");
                if let Some(port) = self.take(asked, &spec_path.child("healthCheckNodePort")) {
                    spec.set("healthCheckNodePort", port);
                }
            }
        });
    }

    /// The same port under two protocols shares its number.
    fn one(&mut self, mut port: Mut<'_>, path: &FieldPath, known: &mut Vec<(i64, String, i64)>) {
        let (own, asked) = (number(port.as_ref(), "port"), number(port.as_ref(), "nodePort"));
        let protocol = port.as_ref().str("protocol").to_owned();
        let shared = known.iter().find(|(number, other, node)| {
            *other != protocol
                && if asked == 0 {
                    *number == own
                } else {
                    *node == asked
                }
        });
        let node = match shared {
            Some((_, _, node)) => Some(*node),
            None => self.take(asked, &path.child("nodePort")),
        };
        if let Some(node) = node {
            port.set("nodePort", node);
            known.push((own, protocol, node));
        }
    }

    fn take(&mut self, asked: i64, path: &FieldPath) -> Option<i64> {
        if asked == 0 {
            let Some(free) = self.range.free(self.ctx.runtime.random_u64()) else {
                self.errors.push(FieldError::internal(
                    path,
                    "failed to allocate a nodePort: range is full",
                ));
                return None;
            };
            self.range.set(free, true);
            self.now.insert(free);
            return Some(free);
        }
        if !self.before.contains(&asked) {
            let detail = if !(FIRST..=LAST).contains(&asked) {
                format!("provided port is not in the valid range. The range of valid ports is {FIRST}-{LAST}")
            } else if self.range.is_set(asked) {
                "provided port is already allocated".to_owned()
            } else {
                String::new()
            };
            if !detail.is_empty() {
                self.errors.push(FieldError::invalid(path, asked, detail));
                return None;
            }
            self.range.set(asked, true);
        }
        self.now.insert(asked);
        Some(asked)
    }
}

/// The bitmap as read, with the revision it may be written over.
struct PortRange {
    key: Key,
    revision: Option<machinery_meta::Revision>,
    bits: Vec<u8>,
}

impl PortRange {
    async fn read(registry: &Registry) -> Result<Self, RegistryError> {
        let key = Key::parse(KEY).map_err(|error| RegistryError::Internal(error.to_string()))?;
        let found = registry.storage().get(&key, ReadAt::Latest).await;
        let found = found.map_err(|error| crate::store::storage_error(&error))?;
        let Some(entry) = found.entry else {
            return Ok(Self {
                key,
                revision: None,
                bits: vec![0; BITMAP_BYTES],
            });
        };
        let mut bits = bitmap_of(&entry.record);
        bits.resize(BITMAP_BYTES, 0);
        Ok(Self {
            key,
            revision: Some(entry.revision),
            bits,
        })
    }

    /// Bits count from the last byte's lowest, as in Go's `big.Int`.
    fn place(port: i64) -> Option<(usize, u8)> {
        let bit = usize::try_from(port.checked_sub(FIRST)?)
            .ok()
            .filter(|_| (FIRST..=LAST).contains(&port))?;
        Some((BITMAP_BYTES - 1 - bit / 8, 1 << (bit % 8)))
    }

    fn is_set(&self, port: i64) -> bool {
        Self::place(port).is_some_and(|(byte, mask)| self.bits[byte] & mask != 0)
    }

    fn set(&mut self, port: i64, taken: bool) {
        if let Some((byte, mask)) = Self::place(port) {
            if taken {
                self.bits[byte] |= mask
            } else {
                self.bits[byte] &= !mask
            }
        }
    }

    /// A free port at or after a random one.
    fn free(&self, random: u64) -> Option<i64> {
        let size = LAST - FIRST + 1;
        let start = i64::try_from(random % size.unsigned_abs()).unwrap_or(0);
        (0..size)
            .map(|step| FIRST + (start + step) % size)
            .find(|port| !self.is_set(*port))
    }

    fn write(self) -> Result<Vec<Write>, RegistryError> {
        let record = record_of(&self.bits)?;
        Ok(vec![match self.revision {
            Some(revision) => Write::update(self.key, revision, record),
            None => Write::create(self.key, record),
        }])
    }
}

fn record_of(bits: &[u8]) -> Result<Record, RegistryError> {
    let used = bits.iter().position(|byte| *byte != 0).unwrap_or(bits.len());
    let text = format!(
        "{{\"kind\":\"RangeAllocation\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"range\":\"{FIRST}-{LAST}\",\"data\":\"{}\"}}",
        STANDARD.encode(&bits[used..])
    );
    let tree = Tree::from_json(&text).map_err(|error| RegistryError::Internal(error.to_string()))?;
    let split = encode_split(&tree);
    let header = ObjectHeader {
        key: ObjectKey::cluster("servicenodeports"),
        ..ObjectHeader::default()
    };
    Ok(Record {
        parts: [split.type_meta, split.head, split.tail],
        fingerprint: 0,
        header: Arc::new(header),
    })
}

fn bitmap_of(record: &Record) -> Vec<u8> {
    let mut text = vec![b'{'];
    for part in [
        &record.parts[0],
        &record.parts[1],
        &Bytes::from_static(b"\"0\""),
        &record.parts[2],
    ] {
        text.extend_from_slice(part);
    }
    let untyped = Tree::untyped();
    let decoded = decode_json(untyped.schema(), untyped.ty(), &text, Strictness::Ignore);
    let data = decoded
        .ok()
        .map(|decoded| decoded.tree.str_at(&["data"]).to_owned())
        .unwrap_or_default();
    let used = STANDARD.decode(data).unwrap_or_default();
    let mut bits = vec![0; BITMAP_BYTES.saturating_sub(used.len())];
    bits.extend(used);
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_come_back() {
        let key = Key::parse(KEY).unwrap();
        let mut range = PortRange {
            key,
            revision: None,
            bits: vec![0; BITMAP_BYTES],
        };
        for port in [30000, 30001, 32767] {
            range.set(port, true);
        }
        let record = record_of(&range.bits).unwrap();
        assert_eq!(bitmap_of(&record), range.bits);
        assert!(range.is_set(32767) && !range.is_set(30002) && !range.is_set(29999));
        assert_eq!(range.free(0), Some(30002));
    }
}

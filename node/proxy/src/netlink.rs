//! A change of elements in the kernel's own form; [`crate::table`] has the same as text.

use crate::affinity::AffinityEntry;
use crate::elements::{Delta, Frontend, Key, Summary, Value};
use crate::table::{AFFINITY, TABLE, collection};
use ipnet::Ipv4Net;
use machinery_views::Protocol;
use node_sys::nftables::{ElementBatch, ElementData, ElementVerb};
use std::net::Ipv4Addr;

/// The transaction of a change; deletions first, so that a changed value is a deletion and an addition.
pub fn batch(delta: &Delta) -> ElementBatch {
    let mut batch = ElementBatch::new(TABLE);
    let changes = |verb, elements| std::iter::zip(std::iter::repeat(verb), elements);
    let all = changes(ElementVerb::Delete, &delta.delete).chain(changes(ElementVerb::Add, &delta.add));
    for (verb, (key, value)) in all {
        let set = collection(*key, *value);
        let first = key_bytes(*key, false);
        if matches!(key, Key::Allowed(..)) {
            batch.interval(verb, &set, &first, &key_bytes(*key, true));
            continue;
        }
        let target;
        let data = match value {
            Value::Target(address, port) if verb == ElementVerb::Add => {
                target = target_bytes(*address, *port);
                ElementData::Value(&target)
            }
            _ => ElementData::Nothing,
        };
        batch.element(verb, &set, &first, data);
    }
    batch
}

/// The transaction that takes notes of affinity away.
pub fn without(notes: &[AffinityEntry]) -> ElementBatch {
    let mut batch = ElementBatch::new(TABLE);
    for note in notes {
        batch.element(ElementVerb::Delete, AFFINITY, &note.key(), ElementData::Nothing);
    }
    batch
}

/// Fields padded to four bytes each: addresses and ports in network order, slots in the machine's.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn field(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
        let padded = self.0.len().next_multiple_of(4);
        self.0.resize(padded, 0);
    }

    fn place(&mut self, protocol: Protocol, port: u16) {
        self.field(&[protocol.number()]);
        self.field(&port.to_be_bytes());
    }

    fn frontend(&mut self, frontend: Frontend) {
        if let Frontend::Address(address, ..) = frontend {
            self.field(&address.octets());
        }
        let (Frontend::Address(_, protocol, port) | Frontend::NodePort(protocol, port)) = frontend;
        self.place(protocol, port);
    }
}

/// The key, or the end of the interval that it stands for.
fn key_bytes(key: Key, end: bool) -> Vec<u8> {
    let mut out = Fields::default();
    match key {
        Key::Service(frontend, _)
        | Key::Masquerade(frontend)
        | Key::Local(frontend)
        | Key::Refused(frontend)
        | Key::Affine(frontend) => out.frontend(frontend),
        Key::Endpoint(frontend, _, slot) => {
            out.frontend(frontend);
            out.field(&u32::from(slot).to_ne_bytes());
        }
        Key::Sticky(frontend, (address, port)) => {
            out.frontend(frontend);
            out.field(&address.octets());
            out.field(&port.to_be_bytes());
        }
        Key::Restricted(address, protocol, port) => out.frontend(Frontend::Address(address, protocol, port)),
        Key::Allowed(address, protocol, port, range) => {
            out.frontend(Frontend::Address(address, protocol, port));
            out.field(&source(range, end).octets());
        }
        Key::Summary(Summary::NodePort(protocol, port)) => out.place(protocol, port),
        Key::Summary(Summary::Address(address)) | Key::ClusterIp(address) => out.field(&address.octets()),
        Key::Hairpin(address) => {
            out.field(&address.octets());
            out.field(&address.octets());
        }
    }
    out.0
}

fn source(range: Ipv4Net, end: bool) -> Ipv4Addr {
    if end { range.broadcast() } else { range.network() }
}

fn target_bytes(address: Ipv4Addr, port: u16) -> [u8; 8] {
    let ([a, b, c, d], [high, low]) = (address.octets(), port.to_be_bytes());
    [a, b, c, d, high, low, 0, 0]
}

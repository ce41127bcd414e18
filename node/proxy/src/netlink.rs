//! A change of elements in the kernel's own form; [`crate::table`] has the same as text.

use crate::elements::{Delta, Key, Value};
use crate::model::Protocol;
use crate::table::{TABLE, collection};
use node_sys::nftables::{ElementBatch, ElementData, ElementVerb};
use std::net::Ipv4Addr;

/// The transaction of a change; deletions first, so that a changed value is a deletion and an addition.
pub fn batch(delta: &Delta) -> ElementBatch {
    let mut batch = ElementBatch::new(TABLE);
    let mut element = |verb, key: Key, value: Value| {
        let (bytes, length) = key_bytes(key);
        let target;
        let data = match value {
            Value::Target(address, port) if verb == ElementVerb::Add => {
                target = target_bytes(address, port);
                ElementData::Value(&target)
            }
            _ => ElementData::Nothing,
        };
        batch.element(verb, &collection(key, value), &bytes[..length], data);
    };
    delta
        .delete
        .iter()
        .for_each(|(key, value)| element(ElementVerb::Delete, *key, *value));
    delta
        .add
        .iter()
        .for_each(|(key, value)| element(ElementVerb::Add, *key, *value));
    batch
}

/// Fields padded to four bytes each: addresses and ports in network order, slots in the machine's.
fn key_bytes(key: Key) -> ([u8; 16], usize) {
    let mut out = [0; 16];
    let mut length = 0;
    let mut field = |bytes: &[u8]| {
        out[length..length + bytes.len()].copy_from_slice(bytes);
        length += 4;
    };
    match key {
        Key::Service(address, protocol, port)
        | Key::Masquerade(address, protocol, port)
        | Key::Refused(address, protocol, port) => {
            field(&address.octets());
            field(&[number(protocol)]);
            field(&port.to_be_bytes());
        }
        Key::Endpoint(address, protocol, port, slot) => {
            field(&address.octets());
            field(&[number(protocol)]);
            field(&port.to_be_bytes());
            field(&u32::from(slot).to_ne_bytes());
        }
        Key::NodePort(protocol, port)
        | Key::NodePortFrontend(protocol, port)
        | Key::NodePortMasquerade(protocol, port)
        | Key::NodePortRefused(protocol, port) => {
            field(&[number(protocol)]);
            field(&port.to_be_bytes());
        }
        Key::NodePortEndpoint(protocol, port, slot) => {
            field(&[number(protocol)]);
            field(&port.to_be_bytes());
            field(&u32::from(slot).to_ne_bytes());
        }
        Key::Hairpin(address) => {
            field(&address.octets());
            field(&address.octets());
        }
        Key::ClusterIp(address) | Key::Frontend(address) => field(&address.octets()),
    }
    (out, length)
}

fn target_bytes(address: Ipv4Addr, port: u16) -> [u8; 8] {
    let ([a, b, c, d], [high, low]) = (address.octets(), port.to_be_bytes());
    [a, b, c, d, high, low, 0, 0]
}

fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}

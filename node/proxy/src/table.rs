//! The nftables table as text: its fixed part, and its elements.
//!
//! The chains and sets are always the same, however many services there are; services and endpoints are elements.
//! A service with four endpoints is in the set `to_c4`, which leads to the chain `c4`, which picks one of four slots
//! at random; `l4` is for traffic from outside that stays on this node, `p4` and `q4` are the same for node ports. Only
//! the first packet of a connection passes here.
//!
//! There is a set per number of slots, rather than one map to verdicts, because the kernel walks every element of
//! every verdict map when one of them changes: with thirty thousand services a change would cost ten milliseconds.
//!
//! Clients that stay with an endpoint are noted by the chain `note` once their connection has been translated, and
//! requested before a slot is picked. There is a set per time, as the time is a part of the rule.

use crate::NodePortAddresses;
use crate::affinity::{AffinityEntry, STEPS};
use crate::elements::{Delta, Frontend, Key, Scope, Summary, Value};
use crate::slots::slot_counts;
use ipnet::Ipv4Net;
use machinery_views::Protocol;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The table; nothing outside it is touched.
pub const TABLE: &str = "knarr-proxy";
/// The bit that says "give this packet the node's address", as upstream's proxy uses it.
const MASQUERADE_MARK: &str = "0x4000";

/// The map of clients that stay with an endpoint; the kernel writes it.
pub const AFFINITY: &str = "affinity";

const SERVICE_KEY: &str = "type ipv4_addr . inet_proto . inet_service;";
const PORT_KEY: &str = "type inet_proto . inet_service;";
const STICKY_KEY: &str = "type ipv4_addr . inet_proto . inet_service . ipv4_addr . inet_service;";
const STICKY_PORT_KEY: &str = "type inet_proto . inet_service . ipv4_addr . inet_service;";

/// Beyond the size of `affinity` clients are not noted, and spread as if the service had no affinity.
const MAPS: &str = "\
 map endpoints { typeof ip daddr . ip protocol . th dport . numgen random mod 2 : ip daddr . th dport; }
 map local_endpoints { typeof ip daddr . ip protocol . th dport . numgen random mod 2 : ip daddr . th dport; }
 map nodeport_endpoints { typeof ip protocol . th dport . numgen random mod 2 : ip daddr . th dport; }
 map nodeport_local_endpoints { typeof ip protocol . th dport . numgen random mod 2 : ip daddr . th dport; }
 map affinity { typeof ip saddr . ip daddr . ip protocol . th dport : ip daddr . th dport; size 262144; flags dynamic,timeout; }
 set hairpin { type ipv4_addr . ipv4_addr; }
 set cluster_ips { type ipv4_addr; }
 set frontends { type ipv4_addr; }
 set restricted { type ipv4_addr . inet_proto . inet_service; }
 set allowed { type ipv4_addr . inet_proto . inet_service . ipv4_addr; flags interval; }
";

/// The four ways to spread: prefix of its chains, map of its endpoints, fields before the port, chain that asks them.
const SPREADS: [(&str, &str, &str, &str); 4] = [
    ("c", "endpoints", "ip daddr . ", "service_spread"),
    ("l", "local_endpoints", "ip daddr . ", "service_local"),
    ("p", "nodeport_endpoints", "", "nodeport_spread"),
    ("q", "nodeport_local_endpoints", "", "nodeport_local"),
];

/// Everything but the elements, replacing whatever table of this name is there.
pub fn base(cluster_cidr: Option<Ipv4Net>, node_ports: &NodePortAddresses) -> String {
    let at_node = node_ports.nft_match();
    let mut out = format!("table ip {TABLE}\ndelete table ip {TABLE}\ntable ip {TABLE} {{\n{MAPS}");
    for name in ["masquerades", "locals", "refused", "dropped", "affine"] {
        let _ = writeln!(
            out,
            " set {name} {{ {SERVICE_KEY} }}\n set nodeport_{name} {{ {PORT_KEY} }}"
        );
    }
    let _ = writeln!(out, " set nodeports {{ {PORT_KEY} }}");
    out.push_str(" chain reject_it {\n  reject\n }\n chain drop_it {\n  drop\n }\n");
    for (prefix, map, before_port, asking) in SPREADS {
        let type_ = if before_port.is_empty() {
            PORT_KEY
        } else {
            SERVICE_KEY
        };
        let mut ask = String::new();
        for slots in slot_counts() {
            let name = format!("{prefix}{slots}");
            let _ = writeln!(out, " set to_{name} {{ {type_} }}");
            let _ = writeln!(
                ask,
                "  {before_port}meta l4proto . th dport @to_{name} goto {name}"
            );
            spread_chain(
                &mut out,
                &name,
                map,
                before_port,
                &format!("numgen random mod {slots}"),
            );
        }
        let _ = writeln!(out, " chain {asking} {{\n{ask} }}");
    }
    affinity_chains(&mut out);
    translation_chains(&mut out, cluster_cidr, &at_node);
    out.push_str(&FILTER_CHAINS.replace(AT_NODE, &at_node));
    out
}

/// Chains that record session affinity, and chains that apply it.
fn affinity_chains(out: &mut String) {
    out.push_str(" chain stay {\n");
    for protocol in Protocol::ALL.map(Protocol::lower) {
        let _ = writeln!(
            out,
            "  meta l4proto {protocol} dnat ip to ip saddr . ip daddr . meta l4proto . th dport map @{AFFINITY}"
        );
    }
    out.push_str(" }\n");
    let (mut sets, mut rules) = (String::new(), String::new());
    for seconds in STEPS {
        let _ = writeln!(sets, " set sticky{seconds} {{ {STICKY_KEY} }}");
        let _ = writeln!(sets, " set nodeport_sticky{seconds} {{ {STICKY_PORT_KEY} }}");
        for (set, address) in [("sticky", "ct original ip daddr . "), ("nodeport_sticky", "")] {
            for protocol in Protocol::ALL.map(Protocol::lower) {
                let _ = writeln!(
                    rules,
                    "  meta l4proto {protocol} {address}meta l4proto . ct original proto-dst . ip daddr . th dport \
                     @{set}{seconds} update @{AFFINITY} {{ ip saddr . ct original ip daddr . meta l4proto . \
                     ct original proto-dst timeout {seconds}s : ip daddr . th dport }}"
                );
            }
        }
    }
    let _ = writeln!(out, "{sets} chain note {{\n{rules} }}\n chain affine_only {{");
    for protocol in Protocol::ALL.map(Protocol::lower) {
        let _ = writeln!(
            out,
            "  meta l4proto {protocol} ct original ip daddr . meta l4proto . ct original proto-dst @affine goto note\n  \
             meta l4proto {protocol} meta l4proto . ct original proto-dst @nodeport_affine goto note"
        );
    }
    out.push_str(" }\n");
}

/// Chains that translate addresses. Pods and the node itself reach every endpoint of a service whose outside traffic
/// stays on the node.
fn translation_chains(out: &mut String, cluster_cidr: Option<Ipv4Net>, at_node: &str) {
    let outside = cluster_cidr.map_or(String::new(), |cidr| format!("ip saddr != {cidr} "));
    let _ = write!(
        out,
        "\
 chain service {{
  jump stay
  {outside}fib saddr type != local ip daddr . meta l4proto . th dport @locals goto service_local
  goto service_spread
 }}
 chain nodeport {{
  meta l4proto . th dport @nodeport_masquerades meta mark set meta mark | {MASQUERADE_MARK}
  meta l4proto . th dport @nodeport_locals fib saddr type local meta mark set meta mark | {MASQUERADE_MARK}
  jump stay
  {outside}fib saddr type != local meta l4proto . th dport @nodeport_locals goto nodeport_local
  goto nodeport_spread
 }}
 chain services {{
  {outside}ip daddr . meta l4proto . th dport @masquerades meta mark set meta mark | {MASQUERADE_MARK}
  ip daddr . meta l4proto . th dport @locals fib saddr type local meta mark set meta mark | {MASQUERADE_MARK}
  ip daddr @frontends jump service
  meta l4proto . th dport @nodeports {at_node} jump nodeport
 }}
 chain masquerade_it {{
  meta mark set meta mark ^ {MASQUERADE_MARK}
  masquerade fully-random
 }}
 chain prerouting {{
  type nat hook prerouting priority dstnat; policy accept;
  jump services
 }}
 chain nat_output {{
  type nat hook output priority -100; policy accept;
  jump services
 }}
 chain postrouting {{
  type nat hook postrouting priority srcnat; policy accept;
  meta mark & {MASQUERADE_MARK} == {MASQUERADE_MARK} jump masquerade_it
  ct status dnat ip saddr . ip daddr @hairpin masquerade fully-random
 }}
"
    );
}

/// Stands for the match of the node's addresses.
const AT_NODE: &str = "AT_NODE";

/// Chains that filter: before translation, by the sources allowed for a load balancer's address; after it, traffic without a target
/// to translate to.
const FILTER_CHAINS: &str = "\
 chain restrict {
  ip daddr . meta l4proto . th dport @restricted ip daddr . meta l4proto . th dport . ip saddr != @allowed drop
 }
 chain restrict_prerouting {
  type filter hook prerouting priority -110; policy accept;
  ct state new jump restrict
 }
 chain restrict_output {
  type filter hook output priority -110; policy accept;
  ct state new jump restrict
 }
 chain check {
  ct status dnat goto affine_only
  ip daddr . meta l4proto . th dport @refused goto reject_it
  ip daddr . meta l4proto . th dport @dropped goto drop_it
  ip daddr @cluster_ips goto reject_it
  meta l4proto . th dport @nodeport_refused AT_NODE goto reject_it
  meta l4proto . th dport @nodeport_dropped AT_NODE goto drop_it
 }
 chain input {
  type filter hook input priority -5; policy accept;
  ct state new jump check
 }
 chain forward {
  type filter hook forward priority -5; policy accept;
  ct state new jump check
 }
 chain output {
  type filter hook output priority -5; policy accept;
  ct state new jump check
 }
}
";

fn spread_chain(out: &mut String, name: &str, map: &str, key: &str, slot: &str) {
    let _ = writeln!(out, " chain {name} {{");
    for protocol in Protocol::ALL.map(Protocol::lower) {
        let _ = writeln!(
            out,
            "  meta l4proto {protocol} dnat ip to {key}meta l4proto . th dport . {slot} map @{map}"
        );
    }
    out.push_str(" }\n");
}

/// Elements in one command hold at most this many, so that nft's parser stays quick.
const CHUNK: usize = 4096;

/// The commands of a change; deletions first, so that a changed value is a deletion and an addition.
pub fn change(delta: &Delta) -> String {
    let mut out = String::new();
    commands(
        &mut out,
        "delete",
        delta.delete.iter().map(|(key, value)| (*key, *value)),
    );
    commands(
        &mut out,
        "add",
        delta.add.iter().map(|(key, value)| (*key, *value)),
    );
    out
}

/// Commands that add notes of clients that stay, with the time each has left.
pub fn notes(notes: &[AffinityEntry]) -> String {
    let mut out = String::new();
    for chunk in notes.chunks(CHUNK) {
        let _ = write!(out, "add element ip {TABLE} {AFFINITY} {{ ");
        for (index, note) in chunk.iter().enumerate() {
            out.push_str(if index == 0 { "" } else { ", " });
            let (address, port) = note.target;
            let _ = write!(
                out,
                "{} . {} . {} . {} timeout {}s : {address} . {port}",
                note.client,
                note.address,
                note.protocol.lower(),
                note.port,
                note.expires_in.as_secs().max(1)
            );
        }
        out.push_str(" }\n");
    }
    out
}

/// Commands that add all these elements.
pub fn additions(elements: impl Iterator<Item = (Key, Value)>) -> String {
    let mut out = String::new();
    commands(&mut out, "add", elements);
    out
}

/// One command per map or set and chunk.
fn commands(out: &mut String, verb: &str, elements: impl Iterator<Item = (Key, Value)>) {
    let mut by_set: BTreeMap<Cow<'static, str>, Vec<(Key, Value)>> = BTreeMap::new();
    for (key, value) in elements {
        by_set
            .entry(collection(key, value))
            .or_default()
            .push((key, value));
    }
    for (set, elements) in by_set {
        for chunk in elements.chunks(CHUNK) {
            let _ = write!(out, "{verb} element ip {TABLE} {set} {{ ");
            for (index, (key, value)) in chunk.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                element(out, *key, *value, verb == "delete");
            }
            out.push_str(" }\n");
        }
    }
}

/// The map or set of an element.
pub(crate) fn collection(key: Key, value: Value) -> Cow<'static, str> {
    let of = |frontend: Frontend, service: &'static str, port: &'static str| match frontend {
        Frontend::Address(..) => service,
        Frontend::NodePort(..) => port,
    };
    Cow::Borrowed(match (key, value) {
        (Key::Service(frontend, scope), Value::Spread { slots }) => {
            let (service, port) = match scope {
                Scope::Cluster => ("c", "p"),
                Scope::Local => ("l", "q"),
            };
            return Cow::Owned(format!("to_{}{slots}", of(frontend, service, port)));
        }
        // Only a spread is ever the value of a service; no set has this name.
        (Key::Service(..), _) => "to_nothing",
        (Key::Endpoint(frontend, Scope::Cluster, _), _) => of(frontend, "endpoints", "nodeport_endpoints"),
        (Key::Endpoint(frontend, Scope::Local, _), _) => {
            of(frontend, "local_endpoints", "nodeport_local_endpoints")
        }
        (Key::Masquerade(frontend), _) => of(frontend, "masquerades", "nodeport_masquerades"),
        (Key::Local(frontend), _) => of(frontend, "locals", "nodeport_locals"),
        (Key::Refused(frontend), Value::Drop) => of(frontend, "dropped", "nodeport_dropped"),
        (Key::Refused(frontend), _) => of(frontend, "refused", "nodeport_refused"),
        (Key::Affine(frontend), _) => of(frontend, "affine", "nodeport_affine"),
        (Key::Sticky(frontend, _), value) => {
            let seconds = if let Value::Seconds(seconds) = value {
                seconds
            } else {
                0
            };
            return Cow::Owned(format!("{}{seconds}", of(frontend, "sticky", "nodeport_sticky")));
        }
        (Key::Summary(Summary::Address(_)), _) => "frontends",
        (Key::Summary(Summary::NodePort(..)), _) => "nodeports",
        (Key::Restricted(..), _) => "restricted",
        (Key::Allowed(..), _) => "allowed",
        (Key::Hairpin(..), _) => "hairpin",
        (Key::ClusterIp(..), _) => "cluster_ips",
    })
}

fn frontend_text(frontend: Frontend) -> String {
    match frontend {
        Frontend::Address(address, protocol, port) => format!("{address} . {} . {port}", protocol.lower()),
        Frontend::NodePort(protocol, port) => format!("{} . {port}", protocol.lower()),
    }
}

fn element(out: &mut String, key: Key, value: Value, key_only: bool) {
    out.push_str(&match key {
        Key::Service(frontend, _)
        | Key::Masquerade(frontend)
        | Key::Local(frontend)
        | Key::Refused(frontend)
        | Key::Affine(frontend) => frontend_text(frontend),
        Key::Endpoint(frontend, _, slot) => format!("{} . {slot}", frontend_text(frontend)),
        Key::Sticky(frontend, (address, port)) => {
            format!("{} . {address} . {port}", frontend_text(frontend))
        }
        Key::Summary(Summary::NodePort(protocol, port)) => frontend_text(Frontend::NodePort(protocol, port)),
        Key::Summary(Summary::Address(address)) | Key::ClusterIp(address) => address.to_string(),
        Key::Restricted(address, protocol, port) => frontend_text(Frontend::Address(address, protocol, port)),
        Key::Allowed(address, protocol, port, range) => {
            format!(
                "{} . {range}",
                frontend_text(Frontend::Address(address, protocol, port))
            )
        }
        Key::Hairpin(address) => format!("{address} . {address}"),
    });
    if let Value::Target(address, port) = value
        && !key_only
    {
        let _ = write!(out, " : {address} . {port}");
    }
}

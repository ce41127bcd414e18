//! Records of a service: its addresses, its endpoints and its named ports.

use crate::zone::{OwnedRecord, Record};
use machinery_meta::ObjectKey;
use machinery_views::{Protocol, Service, Slice};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Records of one service at most; ports, and then endpoints, beyond them get none.
const MAX_OF_SERVICE: usize = 32_768;
/// Records of an endpoint without its ports.
const OF_ENDPOINT: usize = 3;

/// Records of a service.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    pub(crate) records: OwnedRecord,
    /// Number of records without the namespace's bound: as many as there are, or more.
    pub(crate) needs: usize,
}

/// The records of a service in a zone of this domain, where there is room for so many; those of its own addresses are there
/// in any case. Made without the zone, which answers meanwhile.
pub(crate) fn brought<'a>(
    domain: &str,
    key: &ObjectKey,
    service: &'a Service,
    slices: impl Iterator<Item = &'a Slice>,
    room: usize,
) -> Brought {
    let namespace = format!("{}.svc.{domain}", key.namespace);
    let name: Arc<str> = format!("{}.{namespace}", key.name).into();
    let mut making = Making {
        most: MAX_OF_SERVICE.min(room),
        wanted: 0,
        cut: false,
        out: OwnedRecord::new(),
        ports: HashMap::new(),
    };
    if let Some(target) = &service.external_name {
        let target = target.trim_end_matches('.').to_ascii_lowercase();
        making.insert(&name, Record::Cname(target.into()));
    } else if service.headless {
        making.headless(&name, slices);
    } else {
        making.cluster(&name, service);
    }
    let mut records = std::mem::take(&mut making.out);
    if !records.is_empty() {
        // RFC 8020: a name with names below it exists, and is answered without data and not with NXDOMAIN,
        // which resolvers apply to the whole subtree.
        records.insert((namespace.into(), Record::Exists));
    }
    let needs = if making.cut {
        making.wanted.min(MAX_OF_SERVICE).max(records.len() + 1)
    } else {
        records.len()
    };
    Brought { records, needs }
}

/// Records in the making.
struct Making<'a> {
    most: usize,
    /// Number of records without a bound, some of them counted twice.
    wanted: usize,
    /// Something was left out for want of room.
    cut: bool,
    out: OwnedRecord,
    /// Names of a port's records and of its protocol, which all endpoints share.
    ports: HashMap<(&'a str, Protocol), [Arc<str>; 2]>,
}

impl<'a> Making<'a> {
    fn insert(&mut self, name: &Arc<str>, record: Record) {
        self.out.insert((Arc::clone(name), record));
    }

    /// A service with addresses of its own.
    fn cluster(&mut self, name: &Arc<str>, service: &'a Service) {
        for address in &service.addresses {
            self.insert(name, Record::address(*address));
            self.insert(&reverse(*address).into(), Record::Ptr(Arc::clone(name)));
        }
        self.wanted = self.out.len();
        for port in &service.ports {
            self.srv(name, (&port.name, port.protocol), port.port, name);
        }
    }

    /// A headless service is its ready endpoints; without any its name is unknown.
    fn headless(&mut self, name: &Arc<str>, slices: impl Iterator<Item = &'a Slice>) {
        for slice in slices {
            for endpoint in slice.endpoints.iter().filter(|one| one.ready) {
                self.wanted += OF_ENDPOINT;
                let with_it = self.out.len() + OF_ENDPOINT;
                if with_it > self.most {
                    // Cut by the namespace's share only; the fixed bound does not go away when others shrink,
                    // so it makes nothing due.
                    self.cut |= with_it <= MAX_OF_SERVICE;
                    let named = slice.ports.iter().filter(|port| !port.name.is_empty());
                    self.wanted += 2 * named.count();
                    continue;
                }
                let host = match endpoint.hostname() {
                    Some(hostname) => hostname.to_owned(),
                    None => endpoint.address.to_string().replace(['.', ':'], "-"),
                };
                let target: Arc<str> = format!("{host}.{name}").into();
                let record = Record::address(endpoint.address);
                self.insert(name, record.clone());
                self.insert(&target, record);
                if endpoint.hostname().is_some() {
                    self.insert(
                        &reverse(endpoint.address).into(),
                        Record::Ptr(Arc::clone(&target)),
                    );
                }
                for port in &slice.ports {
                    if let Some(number) = port.port {
                        self.srv(name, (&port.name, port.protocol), number, &target);
                    }
                }
            }
        }
    }

    /// Named ports only, as the specification has it.
    fn srv(
        &mut self,
        name: &Arc<str>,
        (port_name, protocol): (&'a str, Protocol),
        port: u16,
        target: &Arc<str>,
    ) {
        if port_name.is_empty() {
            return;
        }
        self.wanted += 2;
        let with_it = self.out.len() + 2;
        // Ports get half at most: an address of an endpoint is worth more to clients than the SRV records of
        // another one.
        if with_it > self.most / 2 {
            self.cut |= with_it <= MAX_OF_SERVICE / 2;
            return;
        }
        let names = self.ports.entry((port_name, protocol)).or_insert_with(|| {
            let protocol = format!("_{}.{name}", protocol.lower());
            [format!("_{port_name}.{protocol}").into(), protocol.into()]
        });
        let [of_port, of_protocol] = names.clone();
        let target = Arc::clone(target);
        self.out.insert((of_port, Record::Srv { port, target }));
        self.out.insert((of_protocol, Record::Exists));
    }
}

/// `5.0.244.10.in-addr.arpa`, or the like for IPv6.
fn reverse(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let octets = address.octets();
            let digits = octets
                .iter()
                .rev()
                .map(|octet| format!("{:x}.{:x}.", octet & 15, octet >> 4));
            digits.collect::<String>() + "ip6.arpa"
        }
    }
}

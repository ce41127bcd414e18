//! Every name of the cluster with its records, kept current service by service.
//!
//! Names are absolute, lower case and without the last dot. A service brings its own names and takes them away
//! again; names in between (`ns.svc.cluster.local`, `_tcp.web.ns…`) exist without records.

use crate::model::{Service, Slice};
use crate::query::kind;
use machinery_meta::ObjectKey;
use machinery_runtime::Watched;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// One record of a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Record {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Srv {
        port: u16,
        target: Arc<str>,
    },
    Cname(Arc<str>),
    Ptr(Arc<str>),
    Ns(Arc<str>),
    Txt(Arc<str>),
    Soa {
        domain: Arc<str>,
        serial: u32,
    },
    /// Nothing, but the name is there.
    Exists,
}

impl Record {
    pub fn kind(&self) -> u16 {
        match self {
            Self::A(_) => kind::A,
            Self::Aaaa(_) => kind::AAAA,
            Self::Srv { .. } => kind::SRV,
            Self::Cname(_) => kind::CNAME,
            Self::Ptr(_) => kind::PTR,
            Self::Ns(_) => kind::NS,
            Self::Txt(_) => kind::TXT,
            Self::Soa { .. } => kind::SOA,
            Self::Exists => 0,
        }
    }

    fn address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::A(address),
            IpAddr::V6(address) => Self::Aaaa(address),
        }
    }
}

/// Records that one service brings; ports, and then endpoints, beyond them have none.
const MAX_OF_SERVICE: usize = 32_768;

/// A name and one of its records, as a service brings it.
pub(crate) type OwnedRecord = BTreeSet<(Box<str>, Record)>;

/// The names of one cluster domain, and the reverse names of its addresses.
#[derive(Debug)]
pub struct Zone {
    domain: Arc<str>,
    names: HashMap<Box<str>, Vec<Record>>,
    by_service: HashMap<ObjectKey, OwnedRecord>,
    serial: u32,
    /// True once a name that is absent here does not exist.
    complete: Arc<Watched<bool>>,
}

/// Result of a search for a name in the zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// Its records, of whatever kind; possibly none.
    Records(&'a [Record]),
    /// The address that a pod's name spells out.
    Pod(Ipv4Addr),
    /// No such name here.
    Nothing,
    /// A name of the cluster of which nothing is known yet.
    Unknown,
    /// Not ours to say.
    Elsewhere,
}

impl Zone {
    pub fn new(domain: &str) -> Self {
        let domain: Arc<str> = Arc::from(domain);
        let mut zone = Self {
            domain: Arc::clone(&domain),
            names: HashMap::new(),
            by_service: HashMap::new(),
            serial: 1,
            complete: Arc::new(Watched::new(false)),
        };
        let server: Arc<str> = format!("ns.dns.{domain}").into();
        let own = [
            (domain.to_string(), Record::Ns(Arc::clone(&server))),
            (format!("svc.{domain}"), Record::Exists),
            (format!("pod.{domain}"), Record::Exists),
            (format!("dns.{domain}"), Record::Exists),
            (format!("dns-version.{domain}"), Record::Txt("1.1.0".into())),
            (server.to_string(), Record::Exists),
        ];
        own.into_iter()
            .for_each(|(name, record)| zone.names.entry(name.into()).or_default().push(record));
        zone
    }

    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Changes with every change.
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// Every service has been set: from now on a name that is not here does not exist.
    pub fn set_complete(&mut self) {
        self.complete.replace(true);
    }

    /// True from [`set_complete`](Self::set_complete) on.
    pub fn completion(&self) -> Arc<Watched<bool>> {
        Arc::clone(&self.complete)
    }

    /// Takes what another zone of this domain has from services.
    pub(crate) fn adopt(&mut self, other: Self) {
        for (key, brought) in other.by_service {
            self.put(&key, brought);
        }
    }

    /// Services that brought names.
    pub fn services(&self) -> impl Iterator<Item = &ObjectKey> {
        self.by_service.keys()
    }

    /// Services with what they brought.
    pub(crate) fn brought_by_service(&self) -> impl Iterator<Item = (&ObjectKey, &OwnedRecord)> {
        self.by_service.iter()
    }

    /// Records that a service brought.
    pub(crate) fn brought_by(&self, key: &ObjectKey) -> Option<&OwnedRecord> {
        self.by_service.get(key)
    }

    /// The start of authority, for negative answers.
    pub fn soa(&self) -> Record {
        Record::Soa {
            domain: Arc::clone(&self.domain),
            serial: self.serial,
        }
    }

    /// A service or its slices changed; `None` when it is gone.
    #[cfg(test)]
    pub fn set<'a>(
        &mut self,
        key: &ObjectKey,
        service: Option<&Service>,
        slices: impl Iterator<Item = &'a Slice>,
    ) {
        let domain = Arc::clone(&self.domain);
        let after = service.map(|service| brought(&domain, key, service, slices));
        self.put(key, after.unwrap_or_default());
    }

    /// Replaces what a service [`brought`].
    pub(crate) fn put(&mut self, key: &ObjectKey, after: OwnedRecord) {
        let before = self.by_service.remove(key).unwrap_or_default();
        if before == after {
            if !after.is_empty() {
                self.by_service.insert(key.clone(), after);
            }
            return;
        }
        let mut gone = before.difference(&after).peekable();
        while let Some((name, record)) = gone.next() {
            let mut same = BTreeSet::from([record]);
            while let Some((_, record)) = gone.next_if(|(other, _)| other == name) {
                same.insert(record);
            }
            self.remove(name, same);
        }
        for (name, record) in after.difference(&before) {
            self.names.entry(name.clone()).or_default().push(record.clone());
        }
        if !after.is_empty() {
            self.by_service.insert(key.clone(), after);
        }
        self.serial = self.serial.wrapping_add(1);
    }

    /// Removes records of a name, one of each: another service may have brought the same.
    fn remove(&mut self, name: &str, mut gone: BTreeSet<&Record>) {
        let Some(records) = self.names.get_mut(name) else {
            return;
        };
        records.retain(|own| !gone.remove(own));
        if records.is_empty() {
            self.names.remove(name);
        }
    }

    /// Finds a name in the zone.
    pub fn find(&self, name: &str) -> Found<'_> {
        if let Some(records) = self.names.get(name) {
            return Found::Records(records);
        }
        if is_below(name, &self.domain) {
            let missing = if self.complete.get() {
                Found::Nothing
            } else {
                Found::Unknown
            };
            return self.pod(name).map_or(missing, Found::Pod);
        }
        Found::Elsewhere
    }

    /// `10-244-0-5.ns.pod.cluster.local`: the address is in the name.
    fn pod(&self, name: &str) -> Option<Ipv4Addr> {
        let rest = name.strip_suffix(&*self.domain)?.strip_suffix(".pod.")?;
        let (address, namespace) = rest.split_once('.')?;
        if namespace.is_empty() || namespace.contains('.') {
            return None;
        }
        address.replace('-', ".").parse().ok()
    }
}

pub(crate) fn is_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The records of a service in a zone of this domain. Made without the zone, which answers meanwhile.
pub(crate) fn brought<'a>(
    domain: &str,
    key: &ObjectKey,
    service: &Service,
    slices: impl Iterator<Item = &'a Slice>,
) -> OwnedRecord {
    let namespace = format!("{}.svc.{domain}", key.namespace);
    let name = format!("{}.{namespace}", key.name);
    let mut out = OwnedRecord::new();
    if let Some(target) = &service.external_name {
        let target = target.trim_end_matches('.').to_ascii_lowercase();
        out.insert((name.into(), Record::Cname(target.into())));
    } else if service.headless {
        headless(&mut out, &name, slices);
    } else {
        cluster(&mut out, &name, service);
    }
    if !out.is_empty() {
        out.insert((namespace.into(), Record::Exists));
    }
    out
}

/// A service with addresses of its own.
fn cluster(out: &mut OwnedRecord, name: &str, service: &Service) {
    let target: Arc<str> = name.into();
    for address in &service.addresses {
        out.insert((name.into(), Record::address(*address)));
        out.insert((reverse(*address).into(), Record::Ptr(Arc::clone(&target))));
    }
    for port in &service.ports {
        srv(out, name, &port.name, &port.protocol, port.port, &target);
    }
}

/// A headless service is its ready endpoints; without any its name is unknown.
fn headless<'a>(out: &mut OwnedRecord, name: &str, slices: impl Iterator<Item = &'a Slice>) {
    for slice in slices {
        for endpoint in slice.endpoints.iter().filter(|one| one.ready) {
            if out.len() >= MAX_OF_SERVICE {
                return;
            }
            let host = match &endpoint.hostname {
                Some(hostname) => hostname.to_string(),
                None => endpoint.address.to_string().replace(['.', ':'], "-"),
            };
            let target: Arc<str> = format!("{host}.{name}").into();
            let record = Record::address(endpoint.address);
            out.insert((name.into(), record.clone()));
            out.insert((Box::from(&*target), record));
            if endpoint.hostname.is_some() {
                out.insert((reverse(endpoint.address).into(), Record::Ptr(Arc::clone(&target))));
            }
            for port in &slice.ports {
                let Some(number) = port.port else { continue };
                srv(out, name, &port.name, &port.protocol, number, &target);
            }
        }
    }
}

/// Named ports only, as the specification has it.
fn srv(out: &mut OwnedRecord, name: &str, port_name: &str, protocol: &str, port: u16, target: &Arc<str>) {
    if port_name.is_empty() || out.len() >= MAX_OF_SERVICE / 2 {
        return;
    }
    let protocol = format!("_{}.{name}", protocol.to_ascii_lowercase());
    let record = Record::Srv {
        port,
        target: Arc::clone(target),
    };
    out.insert((format!("_{port_name}.{protocol}").into(), record));
    out.insert((protocol.into(), Record::Exists));
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

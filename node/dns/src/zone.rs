//! Every name of the cluster with its records, kept current service by service.
//!
//! Names are absolute, lower case and without the last dot. A service brings its own names and takes them away
//! again; names in between (`ns.svc.cluster.local`, `_tcp.web.ns…`) exist without records.

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

    pub(crate) fn address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::A(address),
            IpAddr::V6(address) => Self::Aaaa(address),
        }
    }
}

/// Names with their records, as a service brings them.
pub(crate) type OwnedRecord = BTreeSet<(Arc<str>, Record)>;

/// The names of one cluster domain, and the reverse names of its addresses.
#[derive(Debug)]
pub struct Zone {
    domain: Arc<str>,
    names: HashMap<Arc<str>, Vec<Record>>,
    by_service: HashMap<ObjectKey, Arc<OwnedRecord>>,
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
    /// Outside of the cluster's domain.
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

    /// Adopts the services' names of another zone of this domain.
    pub(crate) fn adopt(&mut self, other: Self) {
        for (key, brought) in other.by_service {
            self.put(&key, Arc::unwrap_or_clone(brought));
        }
    }

    /// Services that brought names.
    pub fn services(&self) -> impl Iterator<Item = &ObjectKey> {
        self.by_service.keys()
    }

    /// Services with what they brought.
    pub(crate) fn brought_by_service(&self) -> impl Iterator<Item = (&ObjectKey, &OwnedRecord)> {
        self.by_service.iter().map(|(key, brought)| (key, &**brought))
    }

    /// Records that a service brought.
    pub(crate) fn brought_by(&self, key: &ObjectKey) -> Option<&Arc<OwnedRecord>> {
        self.by_service.get(key)
    }

    /// The start of authority, for negative answers.
    pub fn soa(&self) -> Record {
        Record::Soa {
            domain: Arc::clone(&self.domain),
            serial: self.serial,
        }
    }

    /// Replaces what a service brought.
    pub(crate) fn put(&mut self, key: &ObjectKey, after: OwnedRecord) {
        let before = self.brought_by(key).cloned().unwrap_or_default();
        self.apply(key, Change::between(&before, after));
    }

    /// The change of what a service brought, from what it has here.
    pub(crate) fn apply(&mut self, key: &ObjectKey, change: Change) {
        if !change.gone.is_empty() || !change.new.is_empty() {
            self.serial = self.serial.wrapping_add(1);
        }
        for (name, records) in change.gone {
            self.remove(&name, records);
        }
        for (name, record) in change.new {
            self.names.entry(name).or_default().push(record);
        }
        if change.after.is_empty() {
            self.by_service.remove(key);
        } else {
            self.by_service.insert(key.clone(), Arc::new(change.after));
        }
    }

    /// Removes records of a name, one of each: another service may have brought the same.
    fn remove(&mut self, name: &str, mut gone: BTreeSet<Record>) {
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

/// Difference between what a service brought and what it brings. It is found without the zone, which answers meanwhile.
#[derive(Debug)]
pub(crate) struct Change {
    gone: Vec<(Arc<str>, BTreeSet<Record>)>,
    new: Vec<(Arc<str>, Record)>,
    after: OwnedRecord,
}

impl Change {
    pub(crate) fn between(before: &OwnedRecord, after: OwnedRecord) -> Self {
        let mut gone: Vec<(Arc<str>, BTreeSet<Record>)> = Vec::new();
        for (name, record) in before.difference(&after) {
            match gone.last_mut() {
                Some((last, records)) if last == name => {
                    records.insert(record.clone());
                }
                _ => gone.push((Arc::clone(name), BTreeSet::from([record.clone()]))),
            }
        }
        let new = after.difference(before).cloned().collect();
        Self { gone, new, after }
    }
}

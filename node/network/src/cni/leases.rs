//! Addresses of pods, one file each, as CNI's `host-local` keeps them: the name is the address, the content the container and the
//! link; `last_reserved_ip.0` is where the next search begins, and `lock` is held meanwhile. A node changes from that plugin to this
//! agent, and back, while its pods run.
//!
//! The folder is the truth, read again in each operation; what is in memory saves reading the content of files. Files are not
//! synced: a power cut ends the sandboxes that they name, too.

use super::call::Owner;
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const LAST: &str = "last_reserved_ip.0";
const LOCK: &str = "lock";
/// Between container and link, as `host-local` writes it.
const SEPARATOR: &str = "\r\n";
/// Bytes of a lease's file; the owner of a longer one is unknown.
const LEASE_BYTES_MAX: u64 = 1024;

/// Error of an allocation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeaseError {
    /// In `host-local`'s words.
    #[error("{0} has been allocated to {container}, duplicate allocation is not allowed", container = .1.container)]
    Duplicate(Ipv4Addr, Owner),
    /// In `host-local`'s words.
    #[error("no IP addresses available in range set: {0}-{1}")]
    Full(Ipv4Addr, Ipv4Addr),
    #[error("writing leases of addresses")]
    Files(#[from] io::Error),
}

/// Leases of a network.
#[derive(Debug)]
pub(crate) struct Leases {
    folder: PathBuf,
    known: BTreeMap<Ipv4Addr, Owner>,
}

/// The node's own address on each link.
pub(crate) fn gateway(range: Ipv4Net) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(range.network()).saturating_add(1))
}

/// First and last address for pods.
fn bounds(range: Ipv4Net) -> (u32, u32) {
    let first = u32::from(gateway(range)).saturating_add(1);
    (first, u32::from(range.broadcast()).saturating_sub(1))
}

impl Leases {
    /// The leases in a folder, which need not be there yet.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            known: BTreeMap::new(),
        }
    }

    /// Allocates an address of the range to a container's link: the next one after that allocated last, so that a released
    /// address is reused as late as possible (peers have ARP and conntrack entries of it).
    pub(crate) fn take(&mut self, range: Ipv4Net, owner: &Owner) -> Result<Ipv4Addr, LeaseError> {
        std::fs::create_dir_all(&self.folder)?;
        let _lock = self.lock()?;
        // Read again under the lock: `host-local` may have allocated since, in a node that changes from one to
        // the other.
        self.look()?;
        if let Some((address, _)) = self.known.iter().find(|(_, known)| *known == owner) {
            return Err(LeaseError::Duplicate(*address, owner.clone()));
        }
        let (first, last) = bounds(range);
        // `first..last`: after the last address of the range, and after one outside of it, the search begins at
        // the front.
        let before = self.last().filter(|before| (first..last).contains(before));
        let start = before.map_or(first, |before| before + 1);
        for number in (start..=last).chain(first..start) {
            let address = Ipv4Addr::from(number);
            if !self.known.contains_key(&address) && self.write(address, owner)? {
                // Only where the next search begins.
                let _ = std::fs::write(self.folder.join(LAST), address.to_string());
                return Ok(address);
            }
        }
        // The gateway counts among a range's addresses, as `host-local` says it.
        Err(LeaseError::Full(gateway(range), Ipv4Addr::from(last)))
    }

    /// Returns the addresses of a container's link.
    pub(crate) fn of(&mut self, owner: &Owner) -> io::Result<Vec<Ipv4Addr>> {
        let all = self.all()?.iter();
        Ok(all
            .filter(|(_, known)| *known == owner)
            .map(|(address, _)| *address)
            .collect())
    }

    /// All leases. The owner of an unreadable one has no name.
    pub(crate) fn all(&mut self) -> io::Result<&BTreeMap<Ipv4Addr, Owner>> {
        self.look()?;
        Ok(&self.known)
    }

    /// Releases all addresses of a container's link.
    pub(crate) fn release_all(&mut self, owner: &Owner) -> io::Result<()> {
        let addresses = self.of(owner)?;
        addresses
            .into_iter()
            .try_for_each(|address| self.release(address, owner))
    }

    /// Releases an address of this owner; a lease that another owner has by now stays.
    pub(crate) fn release(&mut self, address: Ipv4Addr, owner: &Owner) -> io::Result<()> {
        let _lock = match self.lock() {
            // No folder, no leases. Only `take` makes it: a deletion on a node that was removed leaves none
            // behind.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            lock => lock?,
        };
        let path = self.path(address);
        self.known.remove(&address);
        if read(&path).is_some_and(|found| found == *owner) {
            remove(&path)?;
        }
        Ok(())
    }

    /// Reports whether the range has a free address.
    pub(crate) fn has_room(&mut self, range: Ipv4Net) -> io::Result<bool> {
        let (first, last) = bounds(range);
        let inside = Ipv4Addr::from(first)..=Ipv4Addr::from(last);
        let taken = self.all()?.range(inside).count();
        Ok(u64::try_from(taken).unwrap_or(u64::MAX) < u64::from(last - first) + 1)
    }

    fn path(&self, address: Ipv4Addr) -> PathBuf {
        self.folder.join(address.to_string())
    }

    fn lock(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).mode(0o600);
        let lock = lock.open(self.folder.join(LOCK))?;
        lock.lock()?;
        Ok(lock)
    }

    /// Number of the address that was given last.
    fn last(&self) -> Option<u32> {
        let text = node_sys::fs::read_head(&self.folder.join(LAST), LEASE_BYTES_MAX).ok()?;
        let last: Ipv4Addr = std::str::from_utf8(&text).ok()?.trim().parse().ok()?;
        Some(last.into())
    }

    /// Reads the folder; contents only of files that are new.
    fn look(&mut self) -> io::Result<()> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.known.clear();
                return Ok(());
            }
            entries => entries?,
        };
        let mut found = BTreeMap::new();
        for entry in entries {
            let name = entry?.file_name();
            let Some(address) = name.to_str().and_then(|name| name.parse::<Ipv4Addr>().ok()) else {
                continue;
            };
            let known = self
                .known
                .remove(&address)
                // A lease's file is written once, so only new ones are read. One without an owner is read
                // again: its writer may have been between create and write.
                .filter(|known| !known.container.is_empty());
            let owner = known.or_else(|| read(&self.path(address))).unwrap_or_else(nobody);
            found.insert(address, owner);
        }
        self.known = found;
        Ok(())
    }

    /// Reports whether the lease was written; otherwise another program has this address.
    fn write(&mut self, address: Ipv4Addr, owner: &Owner) -> io::Result<bool> {
        let path = self.path(address);
        let mut options = OpenOptions::new();
        // `create_new` is the reservation itself: of two programs that chose the same address one fails here.
        let mut file = match options.write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            file => file?,
        };
        let text = format!("{}{SEPARATOR}{}", owner.container, owner.interface);
        if let Err(error) = file.write_all(text.as_bytes()) {
            // A full disk; half a lease would hold the address for no container.
            let _ = remove(&path);
            return Err(error);
        }
        self.known.insert(address, owner.clone());
        Ok(true)
    }
}

/// Owner of a lease that an agent or plugin was killed over.
fn nobody() -> Owner {
    Owner {
        container: String::new(),
        interface: String::new(),
    }
}

/// Owner in a lease's file, [`nobody`] for one that is no lease; `None` where the file is gone.
fn read(path: &Path) -> Option<Owner> {
    let bytes = node_sys::fs::read_head(path, LEASE_BYTES_MAX).ok()?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    let mut lines = text.split(SEPARATOR);
    match (lines.next(), lines.next(), lines.next()) {
        (Some(container), Some(interface), None) if !container.is_empty() => Some(Owner {
            container: container.to_owned(),
            interface: interface.to_owned(),
        }),
        _ => Some(nobody()),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(container: &str) -> Owner {
        Owner {
            container: container.to_owned(),
            interface: "eth0".to_owned(),
        }
    }

    fn range(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    /// Last number of the address.
    fn taken(leases: &mut Leases, container: &str) -> Result<u8, String> {
        let taken = leases.take(range("10.244.0.0/29"), &owner(container));
        taken
            .map(|address| address.octets()[3])
            .map_err(|error| error.to_string())
    }

    #[test]
    fn leases_rest_as_long_as_they_can_and_survive_the_agent() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Leases::new(folder.path().join("knarr"));
        let mut leases = open();
        assert_eq!(taken(&mut leases, "a"), Ok(2), "the first is the gateway's");
        assert_eq!(taken(&mut leases, "b"), Ok(3));
        leases.release(Ipv4Addr::new(10, 244, 0, 2), &owner("a")).unwrap();
        leases = open();
        assert_eq!(taken(&mut leases, "c"), Ok(4));
        let again = "10.244.0.3 has been allocated to b, duplicate allocation is not allowed";
        assert_eq!(taken(&mut leases, "b"), Err(again.to_owned()));
        for (container, last) in [("d", 5), ("e", 6), ("f", 2)] {
            assert_eq!(taken(&mut leases, container), Ok(last));
        }
        let full = "no IP addresses available in range set: 10.244.0.1-10.244.0.6";
        assert_eq!(taken(&mut leases, "g"), Err(full.to_owned()));
        assert!(!leases.has_room(range("10.244.0.0/29")).unwrap());
        assert!(leases.has_room(range("10.244.0.0/28")).unwrap());
    }

    #[test]
    fn leases_of_host_local_are_known_and_readable_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("10.244.0.2"), "old\r\neth0").unwrap();
        std::fs::write(at(LAST), "10.244.0.2").unwrap();
        let mut leases = Leases::new(folder.path().to_owned());
        assert_eq!(taken(&mut leases, "new"), Ok(3));
        assert_eq!(std::fs::read(at("10.244.0.3")).unwrap(), b"new\r\neth0");
        assert_eq!(std::fs::read(at(LAST)).unwrap(), b"10.244.0.3");
        assert_eq!(leases.of(&owner("old")).unwrap(), [Ipv4Addr::new(10, 244, 0, 2)]);
        // The other plugin, called last before the change, has given an address meanwhile and taken one back.
        std::fs::write(at("10.244.0.4"), "late\r\neth0").unwrap();
        std::fs::write(at("10.244.0.2"), "other\r\neth0").unwrap();
        assert_eq!(taken(&mut leases, "next"), Ok(5));
        leases
            .release(Ipv4Addr::new(10, 244, 0, 2), &owner("old"))
            .unwrap();
        assert!(at("10.244.0.2").try_exists().unwrap(), "another's by now");
    }

    #[test]
    fn leases_that_are_torn_hold_their_address_for_nobody() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("10.244.0.2", ""),
            ("10.244.0.3", "half"),
            ("10.244.0.4", "a\r\nb\r\nc"),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        std::fs::write(folder.path().join(LAST), "no address").unwrap();
        let mut leases = Leases::new(folder.path().to_owned());
        assert_eq!(taken(&mut leases, "a"), Ok(5));
        assert_eq!(leases.all().unwrap().len(), 4);
        for (address, owner) in leases.all().unwrap().clone() {
            leases.release(address, &owner).unwrap();
        }
        assert_eq!(leases.all().unwrap().len(), 0);
    }
}

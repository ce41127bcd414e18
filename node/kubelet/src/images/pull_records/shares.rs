//! Shares of namespaces among the credentials of one name. Pure.

/// Secrets of one name, and accounts; upstream's.
const CREDENTIALS_MAX: usize = 100;
/// Bytes of an entry beside its texts, about.
pub(super) const ENTRY_BYTES: usize = 96;

/// A credential of a namespace.
pub(super) trait OfNamespace {
    fn namespace(&self) -> &str;
    fn bytes(&self) -> usize;
}

/// Adds a credential. Where there are as many as may be, it takes the place of the newest of the namespace with the most, unless that is
/// its own.
pub(super) fn push_by_share<T: OfNamespace>(known: &mut Vec<T>, new: T) {
    if known.len() >= CREDENTIALS_MAX {
        let count = |namespace: &str| known.iter().filter(|one| one.namespace() == namespace).count();
        let most = known
            .iter()
            .map(|one| count(one.namespace()))
            .max()
            .unwrap_or_default();
        if count(new.namespace()) + 1 >= most {
            return;
        }
        let newest = known.iter().rposition(|one| count(one.namespace()) == most);
        if let Some(newest) = newest {
            known.remove(newest);
        }
    }
    known.push(new);
}

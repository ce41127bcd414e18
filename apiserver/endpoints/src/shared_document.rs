//! Large documents that are rendered when asked for and kept by nobody, but shared by those who ask at the same time.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// See the module. Only what is being sent is alive.
#[derive(Default)]
pub(crate) struct SharedDocuments(Mutex<Vec<(String, Weak<Vec<u8>>)>>);

/// Bytes that end with the last of their readers.
struct Reader(Arc<Vec<u8>>);

impl AsRef<[u8]> for Reader {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl SharedDocuments {
    /// What is being sent under that key, else what `render` makes. Who asks meanwhile waits for it.
    pub(crate) fn get(&self, key: &str, render: impl FnOnce() -> Vec<u8>) -> Bytes {
        let mut sent = self.0.lock();
        sent.retain(|(_, document)| document.strong_count() > 0);
        let found = sent.iter().find(|(own, _)| own == key);
        let document = found
            .and_then(|(_, document)| document.upgrade())
            .unwrap_or_else(|| {
                let made = Arc::new(render());
                sent.push((key.to_owned(), Arc::downgrade(&made)));
                made
            });
        Bytes::from_owner(Reader(document))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_while_it_is_sent_gets_the_same() {
        let documents = SharedDocuments::default();
        let first = documents.get("a", || vec![1]);
        let second = documents.get("a", || panic!("it is there"));
        assert_eq!(first, second);
        assert_eq!(documents.get("b", || vec![2])[..], [2]);
        drop((first, second));
        assert_eq!(documents.get("a", || vec![3])[..], [3], "nobody kept it");
    }
}

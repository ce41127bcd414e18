//! Large documents: rendered once, off the threads that serve requests and one at a time, shared by all requests for them, and
//! kept for as long as clients request them now and then.

use crate::framing::GZIP_FROM_BYTES;
use apiserver_registry::RegistryError;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::oneshot;

/// A document without requests for so long is dropped.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Documents beyond these bytes are shared while they are sent, and not kept.
const MAX_KEPT_BYTES: usize = 32 << 20;

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct SharedDocuments(Arc<State>);

#[derive(Default)]
struct State {
    slots: Mutex<Slots>,
    /// Held while a document is rendered.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Slots {
    all: Vec<(String, Slot)>,
    kept_bytes: usize,
}

type Coming = Shared<BoxFuture<'static, Option<Arc<Document>>>>;

enum Slot {
    Coming(Coming),
    There(Weak<Document>),
}

/// One of the documents, as it is sent.
pub(crate) struct Document {
    bytes: Vec<u8>,
    pub(crate) gzip: bool,
    /// Since its keeper looked last.
    asked_for: AtomicBool,
}

impl Document {
    /// Compressed where the client takes that and the length is worth it.
    pub(crate) fn new(bytes: Vec<u8>, takes_gzip: bool) -> Self {
        let compressed = (takes_gzip && bytes.len() as u64 >= GZIP_FROM_BYTES)
            .then(|| {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(&bytes).and_then(|()| encoder.finish()).ok()
            })
            .flatten();
        let gzip = compressed.is_some();
        Self {
            bytes: compressed.unwrap_or(bytes),
            gzip,
            asked_for: AtomicBool::new(true),
        }
    }

    pub(crate) fn bytes(self: &Arc<Self>) -> Bytes {
        Bytes::from_owner(Reader(Arc::clone(self)))
    }
}

/// Bytes that end with the last of their readers.
struct Reader(Arc<Document>);

impl AsRef<[u8]> for Reader {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl SharedDocuments {
    /// The document under that key, else what `render` makes; it is made to its end though its requests are given up.
    ///
    /// # Errors
    /// [`RegistryError::Internal`] where `render` panicked.
    pub(crate) async fn get(
        &self,
        runtime: &Runtime,
        key: String,
        render: impl FnOnce() -> Document + Send + 'static,
    ) -> Result<Arc<Document>, RegistryError> {
        let coming = match self.find(&key) {
            Ok(document) => return Ok(document),
            Err(coming) => coming,
        };
        let coming = coming.unwrap_or_else(|| self.begin(runtime, key, render));
        let made = coming.await;
        made.ok_or_else(|| RegistryError::Internal("the document could not be rendered".into()))
    }

    /// A document, or one that is being made.
    fn find(&self, key: &str) -> Result<Arc<Document>, Option<Coming>> {
        let slots = self.0.slots.lock();
        match slots.all.iter().find(|(own, _)| own == key) {
            Some((_, Slot::Coming(coming))) => Err(Some(coming.clone())),
            Some((_, Slot::There(document))) => {
                let document = document.upgrade().ok_or(None::<Coming>)?;
                document.asked_for.store(true, Ordering::Relaxed);
                Ok(document)
            }
            None => Err(None),
        }
    }

    fn begin(
        &self,
        runtime: &Runtime,
        key: String,
        render: impl FnOnce() -> Document + Send + 'static,
    ) -> Coming {
        let mut slots = self.0.slots.lock();
        if let Some((_, Slot::Coming(coming))) = slots.all.iter().find(|(own, _)| *own == key) {
            return coming.clone();
        }
        let (made, coming) = oneshot::channel();
        let coming: Coming = coming.map(|made| made.ok().flatten()).boxed().shared();
        slots.all.retain(|(own, slot)| *own != key && slot.is_alive());
        slots.all.push((key.clone(), Slot::Coming(coming.clone())));
        drop(slots);
        let (own, within) = (self.clone(), runtime.clone());
        let making = async move {
            let document = own.rendered(&within, &key, render).await;
            let _ = made.send(document.clone());
            if let Some(document) = document {
                own.keep(&within, document).await;
            }
        };
        runtime.spawn_request("shared-document", making).detach();
        coming
    }

    async fn rendered(
        &self,
        runtime: &Runtime,
        key: &str,
        render: impl FnOnce() -> Document + Send + 'static,
    ) -> Option<Arc<Document>> {
        let turn = self.0.turn.lock().await;
        let made = runtime.blocking(render).await.ok().map(Arc::new);
        drop(turn);
        let mut slots = self.0.slots.lock();
        slots.all.retain(|(own, _)| own != key);
        if let Some(document) = &made {
            slots
                .all
                .push((key.to_owned(), Slot::There(Arc::downgrade(document))));
        }
        made
    }

    /// Holds a document until no client requests it any more.
    async fn keep(&self, runtime: &Runtime, document: Arc<Document>) {
        let size = document.bytes.len();
        {
            let mut slots = self.0.slots.lock();
            if slots.kept_bytes + size > MAX_KEPT_BYTES {
                return;
            }
            slots.kept_bytes += size;
        }
        while document.asked_for.swap(false, Ordering::Relaxed) {
            runtime.sleep(KEPT_FOR).await;
        }
        self.0.slots.lock().kept_bytes -= size;
    }
}

impl Slot {
    fn is_alive(&self) -> bool {
        match self {
            Self::Coming(_) => true,
            Self::There(document) => document.strong_count() > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_runtime::Simulation;
    use std::sync::atomic::AtomicUsize;

    /// Documents and how many of them were rendered.
    #[derive(Clone, Default)]
    struct Counted {
        documents: SharedDocuments,
        renders: Arc<AtomicUsize>,
    }

    impl Counted {
        async fn get(&self, runtime: &Runtime, key: &str, bytes: usize) -> Bytes {
            let renders = Arc::clone(&self.renders);
            let render = move || {
                renders.fetch_add(1, Ordering::Relaxed);
                Document::new(vec![1; bytes], false)
            };
            let made = self.documents.get(runtime, key.to_owned(), render).await;
            made.map(|document| document.bytes()).unwrap_or_default()
        }

        fn renders(&self) -> usize {
            self.renders.load(Ordering::Relaxed)
        }
    }

    fn simulate<F: Future<Output = ()> + Send + 'static>(main: impl FnOnce(Runtime, Counted) -> F) {
        let simulation = Simulation::new(1);
        simulation.run(main(simulation.runtime(), Counted::default()));
    }

    #[test]
    fn shared_documents_are_rendered_once_for_all_who_ask_and_kept_while_they_do() {
        simulate(|runtime, all| async move {
            let asked = (0..8).map(|_| all.get(&runtime, "a", 3));
            for answer in futures::future::join_all(asked).await {
                assert_eq!(answer[..], [1; 3]);
            }
            assert_eq!(all.renders(), 1);
            for _ in 0..4 {
                runtime.sleep(KEPT_FOR * 3 / 4).await;
                all.get(&runtime, "a", 3).await;
            }
            assert_eq!(all.renders(), 1, "it was asked for all the time");
            runtime.sleep(KEPT_FOR * 3).await;
            all.get(&runtime, "a", 3).await;
            assert_eq!(all.renders(), 2, "no client asked for it any more");
            all.get(&runtime, "b", 3).await;
            assert_eq!(all.renders(), 3);
        });
    }

    #[test]
    fn shared_documents_are_made_to_their_end_though_the_request_is_given_up() {
        simulate(|runtime, all| async move {
            assert!(all.get(&runtime, "a", 3).now_or_never().is_none());
            runtime.sleep(Duration::from_secs(1)).await;
            assert_eq!(all.renders(), 1);
            assert_eq!(all.get(&runtime, "a", 3).await.len(), 3);
            assert_eq!(all.renders(), 1);
        });
    }

    #[test]
    fn shared_documents_that_are_too_large_together_are_not_kept() {
        simulate(|runtime, all| async move {
            for _ in 0..2 {
                drop(all.get(&runtime, "a", MAX_KEPT_BYTES - 1).await);
                drop(all.get(&runtime, "b", 2).await);
            }
            assert_eq!(all.renders(), 3, "there is room for the first alone");
            // Room comes back with the end of what had it.
            runtime.sleep(KEPT_FOR * 3).await;
            assert_eq!(all.documents.0.slots.lock().kept_bytes, 0);
        });
    }

    #[test]
    fn shared_documents_are_compressed_once_where_they_are_long() {
        let long = vec![b'a'; usize::try_from(GZIP_FROM_BYTES).unwrap()];
        let compressed = Document::new(long.clone(), true);
        assert!(compressed.gzip && compressed.bytes.len() < long.len());
        assert!(!Document::new(long, false).gzip);
        assert!(!Document::new(vec![1], true).gzip);
    }
}

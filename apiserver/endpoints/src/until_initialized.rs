//! A signal that a watch has sent its initial events.

use std::fmt;
use std::sync::Arc;

/// Travels in a watch's request. What it was made with is called once nobody has it any more: the watch lets go of it when the
/// initial events have been taken to be sent, or when it ends before.
#[derive(Clone)]
pub struct UntilInitialized(#[expect(dead_code, reason = "held, never read")] Arc<Signal>);

struct Signal(Option<Box<dyn FnOnce() + Send + Sync>>);

impl UntilInitialized {
    pub fn new(signal: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Signal(Some(Box::new(signal)))))
    }
}

impl fmt::Debug for UntilInitialized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UntilInitialized")
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        if let Some(signal) = self.0.take() {
            signal();
        }
    }
}

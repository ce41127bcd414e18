//! What goes with a request from the first filter to storage.

use crate::error::RegistryError;
use machinery_meta::UserInfo;
use machinery_runtime::Runtime;
use machinery_schema::Tree;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Who asks, until when, and what is said on the way. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RequestContext {
    pub user: Arc<UserInfo>,
    /// On the runtime's monotonic clock.
    pub deadline: Option<Duration>,
    /// What the audit log and the answer's `Audit-Id` call the request.
    pub audit_id: Arc<str>,
    /// The client's `User-Agent`; the default field manager is its first word.
    pub user_agent: Arc<str>,
    pub warnings: Warnings,
    pub audit: AuditAnnotations,
    /// `None` where the request is not audited.
    pub recorder: Option<Arc<dyn RequestRecorder>>,
    pub runtime: Runtime,
}

/// The audit event of a request: takes what handlers read from its body.
pub trait RequestRecorder: fmt::Debug + Send + Sync {
    /// An object in the request's body, decoded and defaulted.
    fn object(&self, object: &Tree);

    /// Whether patches are recorded.
    fn wants_patches(&self) -> bool;

    /// A patch in the request's body, as JSON.
    fn patch(&self, json: &str);
}

impl RequestContext {
    /// A context without deadline, for the server's own work.
    pub fn internal(user: UserInfo, runtime: Runtime) -> Self {
        Self {
            user: Arc::new(user),
            deadline: None,
            audit_id: runtime.uuid().to_string().into(),
            user_agent: "knarr".into(),
            warnings: Warnings::default(),
            audit: AuditAnnotations::default(),
            recorder: None,
            runtime,
        }
    }

    /// Records an object of the request's body in its audit event.
    pub fn record(&self, object: &Tree) {
        if let Some(recorder) = &self.recorder {
            recorder.object(object);
        }
    }

    /// Records a patch, as JSON, in the request's audit event.
    pub fn record_patch<'a>(&self, json: impl FnOnce() -> Cow<'a, str>) {
        if let Some(recorder) = self.recorder.as_ref().filter(|it| it.wants_patches()) {
            recorder.patch(&json());
        }
    }

    /// Asked before every attempt to write: for whom has been told that time is up none is begun.
    ///
    /// # Errors
    /// [`RegistryError::Timeout`] once the deadline is over.
    pub fn in_time(&self) -> Result<(), RegistryError> {
        match self.deadline {
            Some(deadline) if self.runtime.monotonic() >= deadline => {
                Err(RegistryError::Timeout(TIME_IS_UP.to_owned()))
            }
            _ => Ok(()),
        }
    }
}

/// Bodies from this size on are decoded, patched and validated off the threads that serve requests.
pub const LARGE_BODY_BYTES: usize = 64 << 10;
/// Objects that take as much as such bodies do once they are decoded.
pub const LARGE_OBJECT_BYTES: usize = 4 * LARGE_BODY_BYTES;

impl RequestContext {
    /// Work in proportion to a large body or object, off the threads that serve requests.
    ///
    /// # Errors
    /// What the work gives, and [`RegistryError::Internal`] where it panicked.
    pub async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, RegistryError> + Send + 'static,
    ) -> Result<T, RegistryError> {
        let ended = self.runtime.blocking(work).await;
        ended.map_err(|ended| RegistryError::Internal(ended.to_string()))?
    }
}

/// What upstream says of a request that was not answered in time.
pub const TIME_IS_UP: &str = "request did not complete within the allotted timeout";

/// More warnings than this are dropped, and longer ones cut, as upstream does.
const MAX_WARNINGS: usize = 64;
const MAX_WARNING_BYTES: usize = 4 * 1024;

/// Warnings of one request, in order, without repeats.
#[derive(Debug, Clone, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    pub fn add(&self, text: impl Into<String>) {
        let text: String = text.into();
        let mut all = self.0.lock();
        let total: usize = all.iter().map(String::len).sum();
        let full = all.len() >= MAX_WARNINGS || total + text.len() > MAX_WARNING_BYTES;
        if !text.is_empty() && !full && !all.contains(&text) {
            all.push(text);
        }
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// Notes for the audit log.
#[derive(Debug, Clone, Default)]
pub struct AuditAnnotations(Arc<Mutex<Vec<(String, String)>>>);

impl AuditAnnotations {
    pub fn add(&self, key: impl Into<String>, value: impl Into<String>) {
        self.0.lock().push((key.into(), value.into()));
    }

    pub fn take(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *self.0.lock())
    }
}

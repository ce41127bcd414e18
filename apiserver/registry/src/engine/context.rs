//! The context of a request, from the first filter to storage.

use crate::engine::error::RegistryError;
use crate::engine::latency::LatencyTracker;
use crate::engine::point_of_no_return::PointOfNoReturn;
use crate::engine::user_class::UserClass;
use machinery_cel::Interrupt;
use machinery_meta::UserInfo;
use machinery_runtime::{HeavyFlow, Runtime, Weight};
use machinery_schema::Tree;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// User, deadline, warnings and audit record of a request. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RequestContext {
    pub user: Arc<UserInfo>,
    /// The namespace of the request's address; empty without one.
    pub namespace: Arc<str>,
    /// On the runtime's monotonic clock.
    pub deadline: Option<Duration>,
    /// The request's id in the audit log and in the answer's `Audit-Id`.
    pub audit_id: Arc<str>,
    /// The client's `User-Agent`; the default field manager is its first word.
    pub user_agent: Arc<str>,
    /// The address that the request came from; `None` in process.
    pub client_address: Option<IpAddr>,
    pub warnings: Warnings,
    pub audit: AuditAnnotations,
    /// `None` where the request is not audited.
    pub recorder: Option<Arc<dyn RequestRecorder>>,
    pub latency: LatencyTracker,
    pub runtime: Runtime,
    /// See [`RequestContext::heavy`].
    pub weight: Weight,
    pub point_of_no_return: PointOfNoReturn,
}

/// The audit event of a request: takes what handlers read from its body.
pub trait RequestRecorder: fmt::Debug + Send + Sync {
    /// An object in the request's body, decoded and defaulted.
    fn object(&self, object: &Tree);

    /// Reports whether patches are recorded.
    fn wants_patches(&self) -> bool;

    /// A patch in the request's body, as JSON.
    fn patch(&self, json: &str);
}

impl RequestContext {
    /// A context without deadline, for the server's own work.
    pub fn internal(user: UserInfo, runtime: Runtime) -> Self {
        Self {
            user: Arc::new(user),
            namespace: "".into(),
            deadline: None,
            audit_id: runtime.uuid().to_string().into(),
            user_agent: "knarr".into(),
            client_address: None,
            warnings: Warnings::default(),
            audit: AuditAnnotations::default(),
            recorder: None,
            latency: LatencyTracker::default(),
            runtime,
            weight: Weight::default(),
            point_of_no_return: PointOfNoReturn::default(),
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

    /// Read before every attempt to write: after the answer that time is up none is begun.
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

    /// Asked right before every write, which is the point of no return of the request: a client that leaves later leaves
    /// it to be carried out.
    ///
    /// # Errors
    /// [`RegistryError::Timeout`] once the deadline is over, and where the client has left already.
    pub fn begin_write(&self) -> Result<(), RegistryError> {
        self.in_time()?;
        match self.point_of_no_return.pass() {
            true => Ok(()),
            false => Err(RegistryError::Timeout(TIME_IS_UP.to_owned())),
        }
    }

    /// Ends evaluations of expressions once the client has left or the deadline is over.
    pub fn interrupt(&self) -> Arc<dyn Interrupt> {
        Arc::new(Unawaited {
            runtime: self.runtime.clone(),
            deadline: self.deadline,
            point: self.point_of_no_return.clone(),
        })
    }

    /// Ends once the answer is no longer awaited: the client has left, or the deadline is over.
    pub async fn unawaited(&self) {
        let left = self.point_of_no_return.client_left();
        let Some(deadline) = self.deadline else {
            return left.await;
        };
        let time = deadline.saturating_sub(self.runtime.monotonic());
        let _ = self.runtime.timeout(time, left).await;
    }
}

/// A request whose deadline may be over, and whose client may have left.
#[derive(Debug)]
struct Unawaited {
    runtime: Runtime,
    deadline: Option<Duration>,
    point: PointOfNoReturn,
}

impl Interrupt for Unawaited {
    fn is_wanted(&self) -> bool {
        let is_late = |deadline| self.runtime.monotonic() >= deadline;
        self.point.is_abandoned() || self.deadline.is_some_and(is_late)
    }
}

/// Bodies, and objects as they are stored, from this size on are heavy.
pub const LARGE_BODY_BYTES: usize = 64 << 10;
/// Objects that take as much as such bodies do once they are decoded.
pub const LARGE_OBJECT_BYTES: usize = 4 * LARGE_BODY_BYTES;

impl RequestContext {
    /// Says that the following is work in proportion to something large: from here on the request goes on in turn with other heavy
    /// ones, off the threads that serve requests. See [`RequestContext::heavy_flow`].
    ///
    /// # Errors
    /// [`RegistryError::TooManyRequests`] where too many of its flow wait already, [`RegistryError::Timeout`] once the
    /// deadline is over.
    pub async fn heavy(&self) -> Result<(), RegistryError> {
        if self.weight.is_heavy() {
            return Ok(());
        }
        if self.runtime.is_simulated() {
            // As all work off the one thread there is.
            let _ = self.runtime.blocking(|| ()).await;
        }
        let flow = self.heavy_flow();
        if self.runtime.is_full_of_heavy(&flow) {
            return Err(RegistryError::busy());
        }
        self.weight.become_heavy(|| flow).await;
        self.in_time()
    }

    /// The same, where something has so many bytes that it is large.
    ///
    /// # Errors
    /// As [`RequestContext::heavy`].
    pub async fn heavy_from(&self, bytes: usize, large: usize) -> Result<(), RegistryError> {
        match bytes < large {
            true => Ok(()),
            false => self.heavy().await,
        }
    }
}

impl RequestContext {
    /// Owner of the request's turns among the heavy work. The accounts of a namespace are one, since a tenant that may make one
    /// makes a thousand. Work of ordinary users in a namespace is charged to it as well; nodes, controllers and
    /// administrators work in all namespaces, and owe nothing for their tenants.
    pub fn heavy_flow(&self) -> HeavyFlow {
        flow_of(&self.user, &self.namespace)
    }

    /// Owner of the memory that a request holds: of ordinary users as of their turns, a namespace's accounts together.
    pub fn memory_owner(&self) -> Arc<str> {
        match UserClass::of(&self.user) {
            UserClass::Ordinary => self.heavy_flow().account().into(),
            UserClass::System | UserClass::Administrator => self.user.name.as_str().into(),
        }
    }
}

/// The same of a user's request in a namespace, or in none.
pub fn flow_of(user: &UserInfo, namespace: &Arc<str>) -> HeavyFlow {
    let name = user.name.as_str();
    let account = name.strip_prefix("system:serviceaccount:");
    let account: Arc<str> = match account.and_then(|account| account.split_once(':')) {
        Some((namespace, _)) => format!("system:serviceaccounts:{namespace}").into(),
        None => name.into(),
    };
    match UserClass::of(user) {
        UserClass::Administrator => HeavyFlow::of_administrator(account),
        UserClass::Ordinary if !namespace.is_empty() => {
            HeavyFlow::of_account(account).within(Arc::clone(namespace))
        }
        UserClass::System | UserClass::Ordinary => HeavyFlow::of_account(account),
    }
}

/// Upstream's message for a request that was not answered in time.
pub const TIME_IS_UP: &str = "request did not complete within the allotted timeout";

/// Warnings that say more than this are cut, each to so much, and the rest is dropped, as upstream does.
const MAX_WARNING_CHARACTERS: usize = 4 * 1024;
const CUT_WARNING_CHARACTERS: usize = 256;

/// Length in bytes of what is left of a warning that is cut.
pub(crate) fn cut_length(warning: &str) -> usize {
    warning.chars().take(CUT_WARNING_CHARACTERS).count()
}

/// Reports whether warnings that have so many characters once they are cut leave no room for others.
pub(crate) fn fill_warnings(cut: usize) -> bool {
    cut > MAX_WARNING_CHARACTERS
}

/// Warnings of one request, in order, without repeats.
#[derive(Debug, Clone, Default)]
pub struct Warnings(Arc<Mutex<Recorded>>);

/// Upstream's recorder of warnings.
#[derive(Debug, Default)]
struct Recorded {
    all: Vec<String>,
    known: HashSet<String>,
    characters: usize,
    is_cutting: bool,
}

impl Recorded {
    fn add(&mut self, text: String) {
        let full = self.is_cutting && self.characters >= MAX_WARNING_CHARACTERS;
        if text.is_empty() || full || !self.known.insert(text.clone()) {
            return;
        }
        self.all.push(text);
        let last = self.all.len() - 1;
        if self.is_cutting {
            cut(&mut self.all[last]);
        }
        self.characters += self.all[last].chars().count();
        if self.characters > MAX_WARNING_CHARACTERS && !self.is_cutting {
            self.is_cutting = true;
            self.all.iter_mut().for_each(cut);
            self.characters = self.all.iter().map(|own| own.chars().count()).sum();
        }
    }
}

fn cut(warning: &mut String) {
    if let Some((end, _)) = warning.char_indices().nth(CUT_WARNING_CHARACTERS) {
        warning.truncate(end);
    }
}

impl Warnings {
    pub fn add(&self, text: impl Into<String>) {
        self.0.lock().add(text.into());
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock()).all
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &[(usize, usize)], expected: &[usize]) {
        let warnings = Warnings::default();
        for (count, length) in given {
            (0..*count).for_each(|at| warnings.add(format!("{at:é>length$}")));
        }
        let lengths: Vec<usize> = warnings.take().iter().map(|own| own.chars().count()).collect();
        assert_eq!(lengths, expected);
    }

    #[test]
    fn warnings_are_cut_once_they_say_too_much() {
        check(&[(1, MAX_WARNING_CHARACTERS)], &[MAX_WARNING_CHARACTERS]);
        check(&[(2, 2048)], &[2048; 2]);
        // All are cut, the one that was too much as well, and go on until as much is sent again.
        check(&[(3, 2048)], &[CUT_WARNING_CHARACTERS; 3]);
        check(&[(30, 2048)], &[CUT_WARNING_CHARACTERS; 16]);
        check(&[(200, 40)], &[40; 103]);
        check(&[(1, 5), (1, 5)], &[5]);
    }

    #[test]
    fn heavy_flow_is_of_account_and_namespace_where_that_is_the_tenants() {
        let flow = |user: UserInfo, namespace: &str| flow_of(&user, &namespace.into());
        let tenant = HeavyFlow::of_account("system:serviceaccounts:blue");
        let of_tenant = |name| UserInfo::service_account("blue", name);
        assert_eq!(flow(of_tenant("a"), ""), tenant);
        assert_eq!(flow(of_tenant("b"), "green"), tenant.within("green"));
        let anna = UserInfo::named("anna", [UserInfo::AUTHENTICATED]);
        let of_anna = HeavyFlow::of_account("anna").within("green");
        assert_eq!(flow(anna, "green"), of_anna);
        // Users that work for all namespaces owe nothing for one.
        let node = HeavyFlow::of_account("system:node:n");
        assert_eq!(flow(UserInfo::node("n"), "green"), node);
        let admin = UserInfo::named("admin", [UserInfo::MASTERS]);
        assert_eq!(flow(admin, "green"), HeavyFlow::of_administrator("admin"));
        let controller = UserInfo::service_account("kube-system", "job-controller");
        let controllers = HeavyFlow::of_account("system:serviceaccounts:kube-system");
        assert_eq!(flow(controller, "green"), controllers);
    }
}

//! systemd itself, as an agent uses it whose groups are slices: it starts them as transient units, changes their properties, and
//! stops them. Upstream: libcontainer's `systemd/common.go`.
//!
//! Every operation has a connection of its own to the machine's bus, with a match on the end of its own unit's jobs alone:
//! no signals gather on it unread, and one operation that takes long delays no other.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use machinery_runtime::Runtime;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::cgroup::Slices;
use crate::dbus::{self, Call, Connection, DbusError, Message, Reply, Value};

const SERVICE: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
/// Folder that is there where systemd has started the machine, as `sd_booted(3)` has it.
pub const BOOTED: &str = "/run/systemd/system";
/// A job ends within this time, as upstream's.
const JOB_WITHIN: Duration = Duration::from_secs(30);
/// Connections at once; a bus has a bound of its own for each user.
const CONNECTIONS_MAX: usize = 16;

/// A property of a unit.
pub type Property = (&'static str, Value);

/// Failure of systemd, or on the way to it.
#[derive(Debug, thiserror::Error)]
pub enum SystemdError {
    /// A call, or the connection that it needs.
    #[error("{0}: {1}")]
    Bus(&'static str, #[source] DbusError),
    /// A job that has ended without success.
    #[error("systemd's job of {unit} has ended: {result}")]
    Job {
        /// Unit of the job.
        unit: String,
        /// systemd's word for the end.
        result: String,
    },
    /// A job that has not ended in time.
    #[error("systemd's job of {0} has not ended in time")]
    Stuck(String),
}

/// Reports whether systemd has started this machine.
pub fn is_running() -> bool {
    let folder = Path::new(BOOTED).symlink_metadata();
    folder.is_ok_and(|found| found.is_dir())
}

/// The systemd of this machine, over its system bus.
#[derive(Debug)]
pub struct SystemdManager {
    runtime: Runtime,
    executor: Handle,
    bus_address: String,
    connections: Arc<Semaphore>,
}

impl SystemdManager {
    /// The one at the bus of this address, or of the usual one. Its operations run on the caller's executor.
    ///
    /// # Panics
    /// Outside of an executor.
    pub fn new(runtime: Runtime, bus_address: Option<String>) -> Self {
        Self {
            runtime,
            executor: Handle::current(),
            bus_address: bus_address.unwrap_or_else(|| dbus::SYSTEM_BUS.to_owned()),
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        }
    }

    /// Starts a slice with these properties where it does not run, and sets others.
    ///
    /// # Errors
    /// systemd refuses it or cannot be reached.
    pub async fn apply_slice(
        &self,
        slice: &str,
        first: Vec<Property>,
        always: Vec<Property>,
    ) -> Result<(), SystemdError> {
        let _turn = self.connections.acquire().await;
        let mut session = Session::open(self, slice).await?;
        session.start(first).await?;
        if always.is_empty() {
            return Ok(());
        }
        session.set(always).await
    }

    /// Ends what runs in a slice, and removes it. A missing one is fine.
    ///
    /// # Errors
    /// systemd cannot be reached, or it has not ended in time.
    pub async fn stop_slice(&self, slice: &str) -> Result<(), SystemdError> {
        let _turn = self.connections.acquire().await;
        let mut session = Session::open(self, slice).await?;
        // Killed before the stop: systemd would give each process its stop timeout, and the pod's grace period
        // is over.
        if !session.kill().await? {
            return Ok(());
        }
        let stopped = session.stop().await;
        session.reset_failed().await;
        stopped
    }
}

impl Slices for SystemdManager {
    fn apply(&self, slice: &str, first: Vec<Property>, always: Vec<Property>) -> Result<(), SystemdError> {
        self.executor.block_on(self.apply_slice(slice, first, always))
    }

    fn stop(&self, slice: &str) -> Result<(), SystemdError> {
        self.executor.block_on(self.stop_slice(slice))
    }
}

/// A connection for the sake of one unit.
struct Session<'a> {
    runtime: &'a Runtime,
    bus: Connection,
    unit: &'a str,
    /// Unique name of systemd on the bus: what others send is no news.
    owner: String,
}

impl<'a> Session<'a> {
    async fn open(manager: &'a SystemdManager, unit: &'a str) -> Result<Self, SystemdError> {
        let opened = Connection::open(manager.runtime.clone(), &manager.bus_address).await;
        let bus = opened.map_err(|error| SystemdError::Bus("failed to connect to the system bus", error))?;
        let mut session = Self {
            runtime: &manager.runtime,
            bus,
            unit,
            owner: String::new(),
        };
        let rule = format!(
            "type='signal',sender='{SERVICE}',path='{PATH}',interface='{MANAGER}',member='JobRemoved',arg2='{unit}'"
        );
        // Before any job is queued: its end may come before the answer of the call.
        let added = session.bus.call_bus("AddMatch", &[Value::Text(rule)]).await;
        added.map_err(|error| SystemdError::Bus("failed to follow jobs of systemd", error))?;
        let name = [Value::Text(SERVICE.to_owned())];
        let found = session.bus.call_bus("GetNameOwner", &name).await;
        let found = found.map_err(|error| SystemdError::Bus("failed to find systemd on the bus", error))?;
        if let Some(Value::Text(owner)) = found.values.into_iter().next() {
            session.owner = owner;
        }
        Ok(session)
    }

    async fn call(&mut self, member: &str, arguments: &[Value]) -> Result<Reply, DbusError> {
        let call = Call {
            destination: SERVICE,
            path: PATH,
            interface: MANAGER,
            member,
            arguments,
        };
        self.bus.call(call).await
    }

    fn name(&self) -> Value {
        Value::Text(self.unit.to_owned())
    }

    async fn start(&mut self, properties: Vec<Property>) -> Result<(), SystemdError> {
        let arguments = [
            self.name(),
            replace(),
            Value::Properties(properties),
            Value::NoUnits,
        ];
        match self.call("StartTransientUnit", &arguments).await {
            Ok(reply) => match self.end_of(reply).await? {
                result if result == "done" => Ok(()),
                result => {
                    self.reset_failed().await;
                    let unit = self.unit.to_owned();
                    Err(SystemdError::Job { unit, result })
                }
            },
            // As libcontainer: the slice runs already, its properties are set next.
            Err(error) if is(&error, "UnitExists") => Ok(()),
            Err(error) => Err(SystemdError::Bus("failed to start a unit", error)),
        }
    }

    /// Sets properties until the machine restarts.
    async fn set(&mut self, properties: Vec<Property>) -> Result<(), SystemdError> {
        let arguments = [self.name(), Value::Bool(true), Value::Properties(properties)];
        let set = self.call("SetUnitProperties", &arguments).await;
        set.map_err(|error| SystemdError::Bus("failed to set properties of a unit", error))?;
        Ok(())
    }

    /// Ends all processes of the unit at once, whatever a stop would give them; false where there is no such unit.
    async fn kill(&mut self) -> Result<bool, SystemdError> {
        const KILL: i32 = 9;
        let arguments = [self.name(), Value::Text("all".to_owned()), Value::Int32(KILL)];
        match self.call("KillUnit", &arguments).await {
            Err(error) if is(&error, "NoSuchUnit") => Ok(false),
            // It has no processes.
            Ok(_) | Err(DbusError::Answer { .. }) => Ok(true),
            Err(error) => Err(SystemdError::Bus("failed to end a unit's processes", error)),
        }
    }

    async fn stop(&mut self) -> Result<(), SystemdError> {
        match self.call("StopUnit", &[self.name(), replace()]).await {
            // Whatever its end: the unit is left.
            Ok(reply) => self.end_of(reply).await.map(drop),
            Err(error) if is(&error, "NoSuchUnit") => Ok(()),
            Err(error) => Err(SystemdError::Bus("failed to stop a unit", error)),
        }
    }

    /// Has systemd forget a unit that has failed.
    async fn reset_failed(&mut self) {
        // One that has not failed is gone already.
        let _ = self.call("ResetFailedUnit", &[self.name()]).await;
    }

    /// Waits for the end of a job, and returns systemd's word for it.
    async fn end_of(&mut self, reply: Reply) -> Result<String, SystemdError> {
        let job = reply.values.into_iter().next();
        let runtime = self.runtime.clone();
        let ended = runtime.timeout(JOB_WITHIN, self.next_end_of(job)).await;
        ended.unwrap_or_else(|_| Err(SystemdError::Stuck(self.unit.to_owned())))
    }

    async fn next_end_of(&mut self, job: Option<Value>) -> Result<String, SystemdError> {
        loop {
            let signal = self.bus.next_signal().await;
            let signal =
                signal.map_err(|error| SystemdError::Bus("failed to receive signals of systemd", error))?;
            if let Some(result) = end_in(signal, &self.owner, job.as_ref()) {
                return Ok(result);
            }
        }
    }
}

fn replace() -> Value {
    Value::Text("replace".to_owned())
}

/// Reports whether systemd has answered with this error of its own.
fn is(error: &DbusError, own: &str) -> bool {
    let DbusError::Answer { name, .. } = error else {
        return false;
    };
    name.strip_prefix(SERVICE)
        .is_some_and(|rest| rest.strip_prefix('.') == Some(own))
}

/// The end of a job in a signal: its number, path, unit and result.
fn end_in(signal: Message, owner: &str, job: Option<&Value>) -> Option<String> {
    let is_from = signal.sender.as_deref() == Some(owner);
    if !is_from || signal.member.as_deref() != Some("JobRemoved") || signal.values.get(1) != job {
        return None;
    }
    match signal.values.into_iter().nth(3) {
        Some(Value::Text(result)) => Some(result),
        _ => None,
    }
}

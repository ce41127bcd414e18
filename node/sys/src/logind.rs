//! systemd-logind, as an agent uses it that ends its work before the machine goes down: a lock that delays a shutdown, and news of
//! one. Upstream: `pkg/kubelet/nodeshutdown/systemd`.

use std::any::Any;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use machinery_runtime::Runtime;

use crate::dbus::{Call, Connection, DbusError, Message, Reply, SYSTEM_BUS, Value};

const SERVICE: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";
const BUS: &str = "org.freedesktop.DBus";
/// Folder of logind's drop-ins, and ours among them.
const DROP_INS: &str = "/etc/systemd/logind.conf.d";
const DROP_IN: &str = "99-kubelet.conf";

/// Failure of logind, or on the way to it.
#[derive(Debug, thiserror::Error)]
pub enum LogindError {
    /// A call, or the connection that it needs.
    #[error("{0}")]
    Bus(&'static str, #[source] DbusError),
    /// Its answer has not the values that it is to have.
    #[error("{0} of logind is not as expected")]
    Answer(&'static str),
    /// It has ended, or another is in its place.
    #[error("logind has ended or was started again")]
    Restarted,
}

/// A lock that delays a shutdown for as long as it is there.
pub struct InhibitorLock {
    _held: Box<dyn Any + Send + Sync>,
}

impl InhibitorLock {
    /// The lock that something holds: dropped with it, it is given back.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self {
            _held: Box::new(held),
        }
    }
}

impl std::fmt::Debug for InhibitorLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InhibitorLock").finish_non_exhaustive()
    }
}

/// The machine's logind, or a model of one.
#[async_trait]
pub trait Logind: std::fmt::Debug + Send + Sync {
    /// Connects to it; from then on no news is missed.
    async fn connect(&self) -> Result<Box<dyn LogindSession>, LogindError>;

    /// Writes down that a lock may delay a shutdown for so long. It counts once the configuration is read again. Blocks.
    fn override_inhibit_delay(&self, delay: Duration) -> io::Result<()>;
}

/// A connection to logind. After an error it is of no more use.
#[async_trait]
pub trait LogindSession: std::fmt::Debug + Send {
    /// Time for which a lock may delay a shutdown.
    async fn inhibit_delay_max(&mut self) -> Result<Duration, LogindError>;

    /// Has logind read its configuration again.
    async fn reload_configuration(&mut self) -> Result<(), LogindError>;

    /// Reports whether the machine is on its way down.
    async fn is_preparing(&mut self) -> Result<bool, LogindError>;

    /// Takes a lock that delays a shutdown.
    async fn inhibit(&mut self) -> Result<InhibitorLock, LogindError>;

    /// Waits for the next news: true where the machine goes down, false where it does not after all. It can be dropped at any
    /// time: nothing is lost.
    async fn next_event(&mut self) -> Result<bool, LogindError>;
}

/// The logind of this machine, over its system bus.
#[derive(Debug)]
pub struct SystemLogind {
    runtime: Runtime,
    bus_address: String,
    drop_ins: PathBuf,
}

impl SystemLogind {
    /// The one at the bus of this address, or of the usual one.
    pub fn new(runtime: Runtime, bus_address: Option<String>) -> Self {
        Self {
            runtime,
            bus_address: bus_address.unwrap_or_else(|| SYSTEM_BUS.to_owned()),
            drop_ins: PathBuf::from(DROP_INS),
        }
    }

    /// The same with another folder of drop-ins.
    pub fn with_drop_ins(self, drop_ins: PathBuf) -> Self {
        Self { drop_ins, ..self }
    }
}

#[async_trait]
impl Logind for SystemLogind {
    async fn connect(&self) -> Result<Box<dyn LogindSession>, LogindError> {
        let opened = Connection::open(self.runtime.clone(), &self.bus_address).await;
        let mut bus =
            opened.map_err(|error| LogindError::Bus("failed to connect to the system bus", error))?;
        let rules = [
            format!(
                "type='signal',sender='{SERVICE}',path='{PATH}',interface='{MANAGER}',member='PrepareForShutdown'"
            ),
            format!(
                "type='signal',sender='{BUS}',interface='{BUS}',member='NameOwnerChanged',arg0='{SERVICE}'"
            ),
        ];
        for rule in rules {
            // Before the state is read: a shutdown that begins in between is a signal and not lost.
            let added = bus.call_bus("AddMatch", &[Value::Text(rule)]).await;
            added.map_err(|error| LogindError::Bus("failed to follow signals of logind", error))?;
        }
        let mut session = BusSession {
            bus,
            owner: String::new(),
        };
        // It is started by the first call, where it was not.
        session.is_preparing().await?;
        session.owner = session.owner().await?;
        Ok(Box::new(session))
    }

    fn override_inhibit_delay(&self, delay: Duration) -> io::Result<()> {
        std::fs::create_dir_all(&self.drop_ins)?;
        let seconds = delay.as_secs();
        let content = format!("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec={seconds}\n");
        crate::fs::write_atomically(&self.drop_ins.join(DROP_IN), content.as_bytes(), 0o644)
    }
}

#[derive(Debug)]
struct BusSession {
    bus: Connection,
    /// Unique name of logind on the bus: what others send is no news.
    owner: String,
}

impl BusSession {
    async fn owner(&mut self) -> Result<String, LogindError> {
        let name = [Value::Text(SERVICE.to_owned())];
        let reply = self.bus.call_bus("GetNameOwner", &name).await;
        let reply = reply.map_err(|error| LogindError::Bus("failed to find logind on the bus", error))?;
        match reply.values.into_iter().next() {
            Some(Value::Text(owner)) => Ok(owner),
            _ => Err(LogindError::Answer("the name")),
        }
    }

    async fn call(&mut self, call: Call<'_>, failure: &'static str) -> Result<Reply, LogindError> {
        let reply = self.bus.call(call).await;
        reply.map_err(|error| LogindError::Bus(failure, error))
    }

    async fn property(&mut self, name: &str, failure: &'static str) -> Result<Option<Value>, LogindError> {
        let arguments = [MANAGER, name].map(|text| Value::Text(text.to_owned()));
        let call = Call {
            destination: SERVICE,
            path: PATH,
            interface: "org.freedesktop.DBus.Properties",
            member: "Get",
            arguments: &arguments,
        };
        Ok(self.call(call, failure).await?.values.into_iter().next())
    }

    /// The news of a signal, where it is one. Only the bus can send in its own name, and it fills in the sender of all others.
    fn news(&self, signal: &Message) -> Result<Option<bool>, LogindError> {
        let is = |own: &Option<String>, name: &str| own.as_deref() == Some(name);
        if is(&signal.sender, BUS) && is(&signal.member, "NameOwnerChanged") {
            return match &signal.values[..] {
                [Value::Text(name), _, Value::Text(owner)] if name == SERVICE && *owner != self.owner => {
                    Err(LogindError::Restarted)
                }
                _ => Ok(None),
            };
        }
        let is_news = is(&signal.sender, &self.owner)
            && is(&signal.path, PATH)
            && is(&signal.interface, MANAGER)
            && is(&signal.member, "PrepareForShutdown");
        match signal.values.first() {
            Some(Value::Bool(goes_down)) if is_news => Ok(Some(*goes_down)),
            _ => Ok(None),
        }
    }
}

#[async_trait]
impl LogindSession for BusSession {
    async fn inhibit_delay_max(&mut self) -> Result<Duration, LogindError> {
        let failure = "failed reading InhibitDelayMaxUSec property from logind";
        match self.property("InhibitDelayMaxUSec", failure).await? {
            Some(Value::Uint64(microseconds)) => Ok(Duration::from_micros(microseconds)),
            _ => Err(LogindError::Answer("InhibitDelayMaxUSec")),
        }
    }

    async fn reload_configuration(&mut self) -> Result<(), LogindError> {
        const HANG_UP: i32 = 1;
        let arguments = [
            Value::Text("systemd-logind.service".to_owned()),
            Value::Text("all".to_owned()),
            Value::Int32(HANG_UP),
        ];
        let call = Call {
            destination: "org.freedesktop.systemd1",
            path: "/org/freedesktop/systemd1",
            interface: "org.freedesktop.systemd1.Manager",
            member: "KillUnit",
            arguments: &arguments,
        };
        self.call(call, "unable to reload logind conf").await.map(drop)
    }

    async fn is_preparing(&mut self) -> Result<bool, LogindError> {
        let failure = "failed reading PreparingForShutdown property from logind";
        match self.property("PreparingForShutdown", failure).await? {
            Some(Value::Bool(is_preparing)) => Ok(is_preparing),
            _ => Err(LogindError::Answer("PreparingForShutdown")),
        }
    }

    async fn inhibit(&mut self) -> Result<InhibitorLock, LogindError> {
        let texts = [
            "shutdown",
            "kubelet",
            "Kubelet needs time to handle node shutdown",
            "delay",
        ];
        let arguments = texts.map(|text| Value::Text(text.to_owned()));
        let call = Call {
            destination: SERVICE,
            path: PATH,
            interface: MANAGER,
            member: "Inhibit",
            arguments: &arguments,
        };
        let reply = self.call(call, "failed creating systemd inhibitor").await?;
        let place = match reply.values.first() {
            Some(Value::Handle(place)) => usize::try_from(*place).ok(),
            _ => None,
        };
        let lock = place.and_then(|place| reply.files.into_iter().nth(place));
        lock.map(InhibitorLock::new)
            .ok_or(LogindError::Answer("the inhibitor lock"))
    }

    async fn next_event(&mut self) -> Result<bool, LogindError> {
        loop {
            let signal = self.bus.next_signal().await;
            let signal =
                signal.map_err(|error| LogindError::Bus("failed to receive signals of logind", error))?;
            if let Some(news) = self.news(&signal)? {
                return Ok(news);
            }
        }
    }
}

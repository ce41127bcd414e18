//! The keeper over a table in memory, in simulated time.

use super::super::ports::{Protocol, Target};
use super::*;
use async_trait::async_trait;
use machinery_runtime::Simulation;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;

/// A table, and the calls that it received.
#[derive(Debug, Default)]
struct Model {
    table: Mutex<Entries>,
    refuses: AtomicBool,
    replaced: AtomicUsize,
    swept: AtomicUsize,
    listening: Vec<PortKey>,
    admitted: Mutex<BTreeSet<Ipv4Addr>>,
}

impl Model {
    fn entries(&self) -> Entries {
        self.table.lock().unwrap().clone()
    }

    fn answer(&self) -> Result<(), KernelError> {
        match self.refuses.load(Ordering::Relaxed) {
            true => Err(KernelError::Elements(std::io::Error::from_raw_os_error(1))),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl HostPortKernel for Model {
    fn guard(&self) -> TableGuard {
        TableGuard::unwatched()
    }

    async fn read(&self) -> Result<Entries, KernelError> {
        Ok(self.entries())
    }

    async fn replace(&self, entries: &Entries) -> Result<(), KernelError> {
        self.answer()?;
        self.replaced.fetch_add(1, Ordering::Relaxed);
        *self.table.lock().unwrap() = entries.clone();
        Ok(())
    }

    async fn change(&self, change: &Change) -> Result<(), KernelError> {
        self.answer()?;
        let mut table = self.table.lock().unwrap();
        table.retain(|key, _| !change.delete.contains_key(key));
        table.extend(&change.add);
        Ok(())
    }

    async fn forget_flows(&self, _: Flows) -> Result<usize, KernelError> {
        Ok(0)
    }

    async fn admit_localhost(&self, pods: BTreeSet<Ipv4Addr>) -> Result<(), KernelError> {
        self.admitted.lock().unwrap().extend(pods);
        Ok(())
    }

    async fn listeners(&self) -> Result<Vec<PortKey>, KernelError> {
        Ok(self.listening.clone())
    }

    async fn remove_portmap(&self) -> Result<bool, KernelError> {
        self.swept.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }
}

const ONE: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 2);
const TWO: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 3);

fn tcp(port: u16) -> HostPort {
    let key = PortKey {
        protocol: Protocol::Tcp,
        port,
        address: None,
    };
    HostPort {
        key,
        container_port: 8080,
    }
}

fn entries(ports: &[(u16, Ipv4Addr)]) -> Entries {
    let entry = |(port, address): &(u16, Ipv4Addr)| {
        let target = Target {
            address: *address,
            port: 8080,
        };
        (tcp(*port).key, target)
    };
    ports.iter().map(entry).collect()
}

fn start(runtime: &Runtime, model: &Arc<Model>) -> HostPorts {
    let kernel = Arc::clone(model) as Arc<dyn HostPortKernel>;
    let ports = HostPorts::new(HostPortsConfig::default(), kernel, runtime.clone());
    let keeper = ports.clone();
    runtime.keep("host ports", move || keeper.clone().run()).detach();
    ports
}

#[track_caller]
fn simulate<F: Future<Output = ()> + Send + 'static>(story: impl FnOnce(Runtime) -> F) {
    let simulation = Simulation::new(1);
    simulation.run(story(simulation.runtime()));
}

#[test]
fn host_ports_are_written_when_the_pod_goes_on() {
    simulate(|runtime| async move {
        let model = Arc::new(Model::default());
        let ports = start(&runtime, &model);
        ports.hold("a", ONE, &[tcp(80), tcp(81)]).await.unwrap();
        assert_eq!(model.entries(), entries(&[(80, ONE), (81, ONE)]));
        assert_eq!(*model.admitted.lock().unwrap(), [ONE].into());
        let refused = ports.hold("b", TWO, &[tcp(81), tcp(82)]).await;
        assert_eq!(refused, Err(HostPortError::Taken(tcp(81).key)));
        ports.hold("b", TWO, &[tcp(82)]).await.unwrap();
        ports.release("a", &[ONE]).await;
        assert_eq!(model.entries(), entries(&[(82, TWO)]));
        assert_eq!(
            model.replaced.load(Ordering::Relaxed),
            1,
            "the rest were elements"
        );
    });
}

#[test]
fn host_ports_outlive_the_agent_until_each_pod_was_looked_at() {
    simulate(|runtime| async move {
        let left = entries(&[(80, ONE), (81, TWO), (82, Ipv4Addr::new(10, 244, 0, 9))]);
        let model = Arc::new(Model {
            table: Mutex::new(left.clone()),
            ..Model::default()
        });
        let ports = start(&runtime, &model);
        ports.hold("a", ONE, &[tcp(80)]).await.unwrap();
        assert_eq!(model.entries(), left);
        // It ended while the agent was away, and its address is free from here on.
        ports.release("b", &[TWO]).await;
        assert_eq!(
            model.entries(),
            entries(&[(80, ONE), (82, Ipv4Addr::new(10, 244, 0, 9))])
        );
        assert_eq!(model.swept.load(Ordering::Relaxed), 0);
        ports.settle();
        ports.settle();
        ports.hold("c", TWO, &[tcp(82)]).await.unwrap();
        assert_eq!(model.entries(), entries(&[(80, ONE), (82, TWO)]));
        ports.settle();
        ports.release("c", &[TWO]).await;
        assert_eq!(model.swept.load(Ordering::Relaxed), 1, "once is enough");
    });
}

#[test]
fn host_ports_that_the_kernel_refused_are_written_later() {
    simulate(|runtime| async move {
        let model = Arc::new(Model::default());
        let ports = start(&runtime, &model);
        ports.hold("a", ONE, &[tcp(80)]).await.unwrap();
        model.refuses.store(true, Ordering::Relaxed);
        assert_eq!(
            ports.hold("b", TWO, &[tcp(81)]).await,
            Err(HostPortError::NotWritten)
        );
        // A pod without host ports waits for nothing.
        ports.hold("c", Ipv4Addr::new(10, 244, 0, 4), &[]).await.unwrap();
        ports.release("c", &[Ipv4Addr::new(10, 244, 0, 4)]).await;
        model.refuses.store(false, Ordering::Relaxed);
        ports.hold("b", TWO, &[tcp(81)]).await.unwrap();
        assert_eq!(model.entries(), entries(&[(80, ONE), (81, TWO)]));
        assert_eq!(
            model.replaced.load(Ordering::Relaxed),
            2,
            "what the kernel has was not known"
        );
    });
}

#[test]
fn host_port_of_a_listening_program_is_refused() {
    simulate(|runtime| async move {
        let model = Arc::new(Model {
            listening: vec![tcp(10250).key],
            ..Model::default()
        });
        let ports = start(&runtime, &model);
        let refused = ports.check(&[tcp(80), tcp(10250)]).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "host port 10250/TCP is in use by a program of the node"
        );
        ports.check(&[tcp(80)]).await.unwrap();
    });
}

//! A plan written to routes and programs that refuse some of it.

use super::*;
use crate::third_party::PluginFolders;
use node_sys::CommandOutput;
use node_sys::routes::Range;
use std::sync::Mutex;

/// Routes of which one gateway is refused, as the kernel refuses one on no link.
#[derive(Debug, Default)]
struct Refusing {
    gateway: Option<Ipv4Addr>,
    present: Mutex<BTreeMap<Range, Ipv4Addr>>,
}

impl Routes for Refusing {
    fn list(&self) -> io::Result<BTreeMap<Range, Ipv4Addr>> {
        Ok(self.present.lock().unwrap().clone())
    }

    fn set(&self, range: Range, gateway: Ipv4Addr) -> io::Result<()> {
        if self.gateway == Some(gateway) {
            return Err(io::Error::from_raw_os_error(101));
        }
        self.present.lock().unwrap().insert(range, gateway);
        Ok(())
    }

    fn remove(&self, range: Range) -> io::Result<()> {
        self.present.lock().unwrap().remove(&range);
        Ok(())
    }
}

/// Programs that all end so.
#[derive(Debug)]
struct Ends(i32);

#[async_trait::async_trait]
impl Exec for Ends {
    async fn run(&self, _: CommandSpec) -> Result<CommandOutput, ExecError> {
        Ok(CommandOutput {
            code: self.0,
            ..CommandOutput::default()
        })
    }
}

fn network(folder: &Path, exec: Ends, routes: Arc<Refusing>) -> Network {
    Network {
        config: NetworkConfig {
            node_name: "here".to_owned(),
            cluster_cidr: "10.244.0.0/16".parse().unwrap(),
            cni_config_dir: folder.to_path_buf(),
            third_party_config_dir: folder.join("net.d"),
            plugins: PluginFolders {
                from: Vec::new(),
                links: folder.join("plugins"),
            },
            is_enabled: true,
            host_settings: folder.join("note"),
            mtu: None,
        },
        exec: Arc::new(exec),
        routes,
        runtime: Runtime::real(),
        guard: TableGuard::unwatched(),
        written: Plan::default(),
        third_party: None,
        is_decided: false,
    }
}

fn plan_of(nodes: &[(&str, &str, &str)], network: &Network) -> Plan {
    let views: Vec<(&str, NodeView)> = nodes
        .iter()
        .map(|(name, pods, address)| {
            let view = NodeView {
                pod_cidr: pods.parse().ok(),
                internal_ip: address.parse().ok(),
            };
            (*name, view)
        })
        .collect();
    plan(&network.config, views.iter().map(|(name, view)| (*name, view)))
}

const NODES: [(&str, &str, &str); 4] = [
    ("a", "10.244.1.0/24", "192.0.2.1"),
    ("b", "10.244.2.0/24", "198.51.100.1"),
    ("c", "10.244.3.0/24", "192.0.2.3"),
    ("here", "10.244.0.0/24", "192.0.2.9"),
];

#[tokio::test]
async fn network_of_a_node_that_cannot_be_reached_stops_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let routes = Arc::new(Refusing {
        gateway: Some(Ipv4Addr::new(198, 51, 100, 1)),
        ..Refusing::default()
    });
    let mut network = network(folder.path(), Ends(0), Arc::clone(&routes));
    let wanted = plan_of(&NODES, &network);
    let errors = network.write(&wanted).await;
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["routing 10.244.2.0/24 via 198.51.100.1"]);
    assert!(folder.path().join(CONFLIST).try_exists().unwrap(), "pods start");
    let present: Vec<u8> = routes
        .list()
        .unwrap()
        .keys()
        .map(|(first, _)| first.octets()[2])
        .collect();
    assert_eq!(present, [1, 3]);
}

#[tokio::test]
async fn network_removes_routes_to_nodes_that_left_while_nobody_watched() {
    let folder = tempfile::tempdir().unwrap();
    let routes = Arc::new(Refusing::default());
    routes
        .set((Ipv4Addr::new(10, 244, 7, 0), 24), Ipv4Addr::new(192, 0, 2, 7))
        .unwrap();
    let mut network = network(folder.path(), Ends(0), Arc::clone(&routes));
    let wanted = plan_of(&NODES, &network);
    assert!(network.write(&wanted).await.is_empty());
    let present: Vec<u8> = routes
        .list()
        .unwrap()
        .keys()
        .map(|(first, _)| first.octets()[2])
        .collect();
    assert_eq!(present, [1, 2, 3]);
}

#[expect(clippy::disallowed_methods, reason = "a deadline of the test")]
#[tokio::test]
async fn network_steps_aside_for_another_program_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let routes = Arc::new(Refusing::default());
    let mut network = network(folder.path(), Ends(0), Arc::clone(&routes));
    let wanted = plan_of(&NODES, &network);
    let there = |name: &str| folder.path().join(name).try_exists().unwrap();
    assert!(network.write_all(&wanted).await.is_empty());
    assert!(there(CONFLIST) && routes.list().unwrap().len() == 3);
    let other = folder.path().join("net.d/05-cilium.conflist");
    std::fs::create_dir(folder.path().join("net.d")).unwrap();
    std::fs::write(
        &other,
        r#"{"name": "cilium", "plugins": [{"type": "cilium-cni"}]}"#,
    )
    .unwrap();
    let runtime = network.runtime.clone();
    let changed = others_change(&network.config, &network.third_party, &runtime);
    tokio::time::timeout(Duration::from_secs(30), changed)
        .await
        .unwrap();
    assert!(network.write_all(&wanted).await.is_empty());
    assert!(
        there("05-cilium.conflist") && !there(CONFLIST),
        "the runtime has theirs alone"
    );
    assert_eq!(network.written.rules.as_deref(), Some(NO_RULES));
    assert_eq!(routes.list().unwrap().len(), 0);
    std::fs::remove_file(&other).unwrap();
    assert!(network.write_all(&wanted).await.is_empty());
    assert!(!there("05-cilium.conflist") && there(CONFLIST), "ours is back");
    assert_eq!(network.written.rules, wanted.rules);
    assert_eq!(routes.list().unwrap().len(), 3);
    network.config.is_enabled = false;
    assert!(network.write_all(&wanted).await.is_empty());
    assert!(!there(CONFLIST) && routes.list().unwrap().is_empty(), "disabled");
}

#[tokio::test]
async fn network_starts_no_pod_before_its_rules_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let routes = Arc::new(Refusing::default());
    let mut network = network(folder.path(), Ends(1), Arc::clone(&routes));
    let wanted = plan_of(&NODES, &network);
    assert_eq!(network.write(&wanted).await.len(), 1);
    assert!(!folder.path().join(CONFLIST).try_exists().unwrap());
    assert_eq!(routes.list().unwrap().len(), 3);
}

/// The only thread for blocking work is taken, as by another write to a disk that stalls.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the test holds the executor's own thread"
)]
fn network_disk_that_stalls_holds_no_thread_of_the_executor() {
    let executor = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    executor.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let mut network = network(folder.path(), Ends(0), Arc::new(Refusing::default()));
        let wanted = plan_of(&NODES, &network);
        let (disk_goes_on, stalled) = std::sync::mpsc::channel::<()>();
        let stall = tokio::task::spawn_blocking(move || stalled.recv());
        let mut writing = std::pin::pin!(network.write(&wanted));
        assert!(futures::poll!(writing.as_mut()).is_pending());
        assert!(!folder.path().join(CONFLIST).try_exists().unwrap());
        drop(disk_goes_on);
        let errors = writing.await;
        assert!(errors.is_empty(), "{errors:?}");
        assert!(stall.await.unwrap().is_err());
        let written = std::fs::read_to_string(folder.path().join(CONFLIST)).unwrap();
        assert_eq!(Some(written), wanted.conflist);
    });
}

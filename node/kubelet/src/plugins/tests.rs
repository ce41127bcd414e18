//! Sockets that come and go, in a model of their folder.

use super::folder::{FoundSockets, SocketStamp};
use super::handlers::{Plugin, PluginHandler};
use super::*;
use async_trait::async_trait;
use futures::future::BoxFuture;
use machinery_runtime::{Simulation, Watched};
use node_plugin_api::calls::{Connection, Transport};
use node_plugin_api::plugin_registration::{PluginInfo, RegisteringPlugin, RegistrationStatus, service};
use parking_lot::Mutex;
use tonic::Status;

/// A plugin: its type and name, and whether it answers at all.
#[derive(Debug, Clone)]
struct Model {
    kind: &'static str,
    name: String,
    answers: bool,
    statuses: Arc<Mutex<Vec<RegistrationStatus>>>,
}

impl Model {
    fn new(kind: &'static str, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            answers: true,
            statuses: Arc::default(),
        }
    }

    fn last(&self) -> Option<RegistrationStatus> {
        self.statuses.lock().last().cloned()
    }
}

impl RegisteringPlugin for Model {
    fn info(&self) -> BoxFuture<'static, Result<PluginInfo, Status>> {
        let (own, answers) = (self.clone(), self.answers);
        Box::pin(async move {
            if !answers {
                std::future::pending::<()>().await;
            }
            Ok(PluginInfo {
                r#type: own.kind.to_owned(),
                name: own.name,
                ..PluginInfo::default()
            })
        })
    }

    fn registered(&self, status: RegistrationStatus) -> BoxFuture<'static, Result<(), Status>> {
        self.statuses.lock().push(status);
        Box::pin(async { Ok(()) })
    }
}

#[derive(Debug, Default)]
struct Sockets {
    all: Watched<BTreeMap<PathBuf, (u64, Model)>>,
    listed: Mutex<FoundSockets>,
}

impl Sockets {
    fn set(&self, name: &str, number: u64, model: &Model) {
        self.all.change(|all| {
            all.insert(Path::new("/registry").join(name), (number, model.clone()));
            true
        });
    }

    fn remove(&self, name: &str) {
        self.all
            .change(|all| all.remove(&Path::new("/registry").join(name)).is_some());
    }
}

fn stamps(all: &BTreeMap<PathBuf, (u64, Model)>) -> FoundSockets {
    let own = all.iter();
    own.map(|(path, (number, _))| (path.clone(), SocketStamp::of_number(*number)))
        .collect()
}

#[async_trait]
impl PluginSockets for Sockets {
    async fn clean(&self, _: &Path) -> std::io::Result<()> {
        Ok(())
    }

    async fn serve(&self, _: &Path, _: Transport) -> std::io::Result<()> {
        Ok(())
    }

    async fn connect(&self, socket: &Path) -> Result<Transport, Status> {
        let all = self.all.get();
        let found = all.get(socket).map(|(_, model)| service(model.clone()));
        found.ok_or_else(|| Status::unavailable("no such file or directory"))
    }

    async fn connect_once(&self, _: &Path) -> Result<Connection, Status> {
        Err(Status::unimplemented("no end of it is of interest"))
    }

    async fn list(&self, _: &Path) -> std::io::Result<FoundSockets> {
        let found = stamps(&self.all.get());
        self.listed.lock().clone_from(&found);
        Ok(found)
    }

    async fn changed(&self, _: &Path) {
        self.all.wait_for(|now| stamps(now) != *self.listed.lock()).await;
    }
}

/// Plugins that are registered, and everything that was done.
#[derive(Debug, Default)]
struct Handler {
    done: Mutex<Vec<String>>,
    /// It does not come back from registering.
    hangs: Watched<bool>,
}

#[async_trait]
impl PluginHandler for Handler {
    fn validate(&self, plugin: &Plugin) -> Result<(), String> {
        match plugin.name.as_str() {
            "bad" => Err("it is bad".to_owned()),
            _ => Ok(()),
        }
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), String> {
        self.done.lock().push(format!("+{}", plugin.name));
        self.hangs.wait_for(|hangs| !hangs).await;
        Ok(())
    }

    async fn deregister(&self, plugin: &Plugin) {
        self.done.lock().push(format!("-{}", plugin.name));
    }
}

struct World {
    runtime: Runtime,
    sockets: Arc<Sockets>,
    handler: Arc<Handler>,
}

impl World {
    async fn begin(runtime: Runtime) -> Self {
        let (sockets, handler) = (Arc::new(Sockets::default()), Arc::new(Handler::default()));
        let handlers: Vec<HandlerRow> = vec![("Known", handler.clone())];
        let following = follow(
            runtime.clone(),
            sockets.clone(),
            Arc::new(handlers),
            Path::new("/registry"),
        );
        runtime.spawn("registry", following).detach();
        Self {
            runtime,
            sockets,
            handler,
        }
    }

    async fn settle(&self) {
        self.runtime.sleep(Duration::from_secs(30)).await;
    }

    fn done(&self) -> Vec<String> {
        std::mem::take(&mut *self.handler.done.lock())
    }
}

fn run<F: Future<Output = ()> + Send + 'static>(scenario: impl FnOnce(World) -> F + Send + 'static) {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move { scenario(World::begin(runtime).await).await });
}

#[test]
fn plugin_is_registered_once_and_deregistered_with_its_socket() {
    run(|world| async move {
        let model = Model::new("Known", "a");
        world.sockets.set("a.sock", 1, &model);
        world.settle().await;
        assert_eq!(world.done(), ["+a"]);
        assert!(model.last().unwrap().plugin_registered);
        world.sockets.set("a.sock", 2, &model);
        world.settle().await;
        assert_eq!(world.done(), ["-a", "+a"], "another socket in its place");
        world.sockets.remove("a.sock");
        world.settle().await;
        assert_eq!(world.done(), ["-a"]);
    });
}

#[test]
fn plugin_that_is_refused_is_sent_the_reason() {
    run(|world| async move {
        let (bad, unknown) = (Model::new("Known", "bad"), Model::new("Other", "b"));
        world.sockets.set("bad.sock", 1, &bad);
        world.sockets.set("b.sock", 2, &unknown);
        world.settle().await;
        let said = |model: &Model| model.last().unwrap().error;
        assert_eq!(
            said(&bad),
            "RegisterPlugin error -- plugin validation failed with err: it is bad"
        );
        assert_eq!(
            said(&unknown),
            "RegisterPlugin error -- no handler registered for plugin type: Other at socket /registry/b.sock"
        );
        assert!(world.done().is_empty() && !bad.last().unwrap().plugin_registered);
        world.sockets.remove("bad.sock");
        world.settle().await;
        assert!(world.done().is_empty(), "it was never used");
    });
}

#[test]
fn plugin_that_does_not_answer_holds_up_no_other() {
    run(|world| async move {
        let mut silent = Model::new("Known", "silent");
        silent.answers = false;
        world.sockets.set("a-silent.sock", 1, &silent);
        world.sockets.set("b.sock", 2, &Model::new("Known", "b"));
        world.settle().await;
        assert_eq!(world.done(), ["+b"]);
        silent.answers = true;
        world.sockets.set("a-silent.sock", 3, &silent);
        world.settle().await;
        assert_eq!(world.done(), ["+silent"]);
    });
}

#[test]
fn registration_that_is_half_done_is_taken_back() {
    run(|world| async move {
        world.handler.hangs.replace(true);
        world.sockets.set("a.sock", 1, &Model::new("Known", "a"));
        world.settle().await;
        world.sockets.remove("a.sock");
        world.settle().await;
        assert_eq!(world.done(), ["+a", "-a"]);
    });
}

#[test]
fn sockets_beyond_the_room_are_not_registered() {
    run(|world| async move {
        for number in 0..folder::SOCKETS_MAX + 3 {
            let name = format!("p{number:03}");
            world.sockets.set(&name, 1, &Model::new("Known", &name));
        }
        world.settle().await;
        assert_eq!(world.done().len(), folder::SOCKETS_MAX);
        world.sockets.remove("p000");
        world.settle().await;
        assert_eq!(world.done().len(), 2, "one goes, another has its place");
    });
}

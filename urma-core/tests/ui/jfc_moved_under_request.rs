//! The JFC that a configuration names cannot be deleted before the queue is made.
use urma_core::{Context, Jetty, JettyCfg, JettyRecv, Jfc, JfrCfg, JfsCfg, Status, TransportMode};

fn make(context: &Context, jfc: Jfc) -> Result<Jetty, Status> {
    let recv = JettyRecv::Own { cfg: JfrCfg::new(TransportMode::Rm, 8), jfc: &jfc };
    let cfg = JettyCfg::new(JfsCfg::new(TransportMode::Rm, 8), &jfc, recv);
    let _ = jfc.delete();
    context.create_jetty(&cfg)
}

fn main() {}

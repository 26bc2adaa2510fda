//! The ports of a controller that is not in charge: every call is refused, and is answered who is.

use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::sync::oneshot;
use tonic::Status;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;

use super::server::{ControllerServerCfg, ServerError, ServerExposure, listen, may_listen, server};

/// Listens while another controller is in charge. Dropped, it leaves its ports.
#[derive(Debug)]
pub struct FollowerServer {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FollowerServer {
    /// Listens where a controller with these settings would; `leader` says who is in charge.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(
        cfg: &ControllerServerCfg,
        exposure: ServerExposure,
        leader: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Result<Self, ServerError> {
        may_listen(cfg, exposure)?;
        let servers = [server(cfg.tls.as_ref())?, server(cfg.tls.as_ref())?];
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ServerError::Thread)?;
        let port = |at| {
            // A socket belongs to the runtime that it was made in.
            let _in_runtime = runtime.enter();
            tokio::net::TcpListener::from_std(listen(at)?).map_err(ServerError::Thread)
        };
        let ports = [port(cfg.hosts)?, port(cfg.switches)?];
        let http = exposure.http.map(port).transpose()?;
        let leader = Arc::new(move || match leader() {
            Some(leader) => format!("the controller in charge is {leader}"),
            None => "no controller is in charge yet".to_owned(),
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let run = move || {
            runtime.block_on(async move {
                for (listener, mut server) in ports.into_iter().zip(servers) {
                    let leader = Arc::clone(&leader);
                    let refuse = move || async move {
                        Status::unavailable(leader()).into_http::<axum::body::Body>()
                    };
                    let routes = Routes::from(Router::new().fallback(refuse));
                    let incoming = TcpIncoming::from(listener);
                    tokio::spawn(server.add_routes(routes).serve_with_incoming(incoming));
                }
                if let Some(listener) = http {
                    let health = move || async move { (StatusCode::OK, leader() + "\n") };
                    let routes = Router::new().route("/healthz", get(health));
                    tokio::spawn(async move { axum::serve(listener, routes).await });
                }
                let _ = stopped.await;
            });
        };
        let thread = std::thread::Builder::new().name("inc-follower".to_owned()).spawn(run);
        Ok(Self { stop: Some(stop), thread: Some(thread.map_err(ServerError::Thread)?) })
    }
}

impl Drop for FollowerServer {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

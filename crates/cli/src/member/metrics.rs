//! `--metrics`: the metrics of this member as a page for Prometheus, served over HTTP.
//!
//! One thread serves all connections, and waits for none of them. A connection gets one answer
//! within a few seconds, or is closed. If there are too many, the oldest one is closed.
use crate::exit::{CliError, CliResult, FAILED};
use prometheus_client::encoding::prometheus_text::encode;
use prometheus_client::registry::Registry;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spindle::{Metrics, Monitor};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The largest number of open connections.
const CONNECTIONS_MAX: usize = 16;
/// The longest request.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// How long a connection may be open.
const CONNECTION_MAX: Duration = Duration::from_secs(5);
/// Requests within this time get the same page, so that many requests don't keep the polling thread
/// from its work.
const PAGE_AGE: Duration = Duration::from_millis(100);
/// The pause after a connection could not be accepted, for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
const PATH: &str = "/metrics";

/// The place at which the metrics are served, and the member to which they belong.
#[derive(Clone, Debug)]
pub(super) struct Exposed {
    address: SocketAddr,
    member: Arc<Mutex<Option<Monitor>>>,
}

/// Reads the value of `--metrics`: a port on the loopback interface, or an address and a port.
pub(super) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let on_loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let address = text.parse().or_else(|_| text.strip_prefix(':').unwrap_or(text).parse().map(on_loopback));
    address.map_err(|_| "allowed is a port, or an IP address and a port, such as 127.0.0.1:9464".to_string())
}

impl Exposed {
    /// Serves metrics of a member of `group` at `address`.
    pub(super) fn start(address: SocketAddr, group: &str) -> CliResult<Exposed> {
        let failed = |error: io::Error| {
            let remedy = match error.kind() {
                ErrorKind::AddrInUse => "name another port, or 0 for any that is free",
                ErrorKind::PermissionDenied => "name a port of 1024 or more",
                _ => "name an address of this host",
            };
            CliError::new(FAILED, format_args!("can't serve metrics at {address}: {error}; {remedy}"))
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let member: Arc<Mutex<Option<Monitor>>> = Arc::default();
        let newest = Arc::clone(&member);
        let group = group.to_string();
        let page = move || {
            let monitor = newest.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
            let mut registry = Registry::default();
            registry.register_collector(Box::new(Metrics::new(group.clone(), move || monitor.status())));
            let mut page = String::new();
            encode(&mut page, &registry).ok().map(|()| page)
        };
        let thread =
            thread::Builder::new().name("metrics".into()).spawn(move || MetricsServer::new(listener, page).run());
        thread.map_err(|error| anyhow::anyhow!("no thread could be started: {error}"))?;
        Ok(Exposed { address, member })
    }

    /// Serves the metrics of this member from now on.
    pub(super) fn show(&self, monitor: Monitor) {
        *self.member.lock().unwrap_or_else(PoisonError::into_inner) = Some(monitor);
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }
}

struct MetricsServer<P> {
    listener: TcpListener,
    accept_from: Option<Instant>,
    /// The oldest first.
    connections: VecDeque<ScrapeConnection>,
    pages: Pages<P>,
}

/// The source of the page, and the newest page.
struct Pages<P> {
    make: P,
    newest: Option<(Instant, Option<String>)>,
}

struct ScrapeConnection {
    stream: TcpStream,
    until: Instant,
    state: ConnectionStage,
}

enum ConnectionStage {
    Reading(Vec<u8>),
    Writing(Vec<u8>, usize),
    Done,
}

impl<P: FnMut() -> Option<String>> MetricsServer<P> {
    fn new(listener: TcpListener, make: P) -> MetricsServer<P> {
        MetricsServer { listener, accept_from: None, connections: VecDeque::new(), pages: Pages { make, newest: None } }
    }

    fn run(mut self) {
        loop {
            self.wait();
            self.accept();
            for connection in &mut self.connections {
                // A connection that fails is closed; its client sees that.
                if connection.step(&mut self.pages).is_err() {
                    connection.state = ConnectionStage::Done;
                }
            }
            let now = Instant::now();
            self.connections
                .retain(|connection| !matches!(connection.state, ConnectionStage::Done) && connection.until > now);
        }
    }

    /// Waits until a connection can be served, or its time is over.
    fn wait(&self) {
        let now = Instant::now();
        let wake_at = self.connections.iter().map(|connection| connection.until).chain(self.accept_from).min();
        let timeout = wake_at.map(|at| Timespec::try_from(at.saturating_duration_since(now)).unwrap_or_default());
        let listens = self.accept_from.is_none_or(|from| from <= now);
        let mut fds: Vec<PollFd<'_>> = self.connections.iter().map(ScrapeConnection::interest).collect();
        if listens {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        // An error is an interruption, after which the loop looks at everything.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    fn accept(&mut self) {
        if self.accept_from.is_some_and(|from| from > Instant::now()) {
            return;
        }
        self.accept_from = None;
        for _ in 0..CONNECTIONS_MAX {
            match self.listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    if self.connections.len() == CONNECTIONS_MAX {
                        self.connections.pop_front();
                    }
                    let until = Instant::now() + CONNECTION_MAX;
                    self.connections.push_back(ScrapeConnection {
                        stream,
                        until,
                        state: ConnectionStage::Reading(vec![]),
                    });
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The client has gone meanwhile.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(_) => {
                    self.accept_from = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }
}

impl<P: FnMut() -> Option<String>> Pages<P> {
    fn page(&mut self) -> Option<&str> {
        if self.newest.as_ref().is_none_or(|(made, _)| made.elapsed() >= PAGE_AGE) {
            let page = (self.make)();
            self.newest = Some((Instant::now(), page));
        }
        self.newest.as_ref().and_then(|(_, page)| page.as_deref())
    }
}

impl ScrapeConnection {
    fn interest(&self) -> PollFd<'_> {
        let flags = match self.state {
            ConnectionStage::Writing(..) => PollFlags::OUT,
            ConnectionStage::Reading(_) | ConnectionStage::Done => PollFlags::IN,
        };
        PollFd::new(&self.stream, flags)
    }

    /// Reads and writes as far as that is possible now.
    fn step(&mut self, pages: &mut Pages<impl FnMut() -> Option<String>>) -> io::Result<()> {
        if let ConnectionStage::Reading(request) = &mut self.state {
            let mut buffer = [0; 1024];
            let answer = loop {
                match self.stream.read(&mut buffer) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(count) => request.extend_from_slice(&buffer[..count]),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error),
                }
                if let Some(answer) = answer_to(request, pages) {
                    break answer;
                }
            };
            self.state = ConnectionStage::Writing(answer, 0);
        }
        if let ConnectionStage::Writing(answer, written) = &mut self.state {
            while *written < answer.len() {
                match self.stream.write(&answer[*written..]) {
                    Ok(0) => return Err(ErrorKind::WriteZero.into()),
                    Ok(count) => *written += count,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            self.stream.shutdown(Shutdown::Write)?;
            self.state = ConnectionStage::Done;
        }
        Ok(())
    }
}

/// Returns the answer to a request; `None` as long as more of it has to come.
fn answer_to(request: &[u8], pages: &mut Pages<impl FnMut() -> Option<String>>) -> Option<Vec<u8>> {
    const TEXT: &str = "text/plain; charset=utf-8";
    let has = |end: &[u8]| request.windows(end.len()).any(|bytes| bytes == end);
    if !has(b"\r\n\r\n") && !has(b"\n\n") {
        return match request.len() > REQUEST_BYTES_MAX {
            true => Some(answer("431 Request Header Fields Too Large", TEXT, "", "the request is too long\n", true)),
            false => None,
        };
    }
    let line = request.split(|byte| *byte == b'\n').next().and_then(|line| std::str::from_utf8(line).ok());
    let words: Vec<&str> = line.unwrap_or_default().split_ascii_whitespace().collect();
    let [method, target, version] = words[..] else {
        return Some(answer("400 Bad Request", TEXT, "", "this is no HTTP request\n", true));
    };
    if !version.starts_with("HTTP/1.") {
        return Some(answer("400 Bad Request", TEXT, "", "this is no request of HTTP/1.1\n", true));
    }
    let body = match method {
        "GET" => true,
        "HEAD" => false,
        _ => {
            let allowed = "Allow: GET, HEAD\r\n";
            return Some(answer("405 Method Not Allowed", TEXT, allowed, "only GET and HEAD are served\n", true));
        }
    };
    if target.split('?').next() != Some(PATH) {
        return Some(answer("404 Not Found", TEXT, "", &format!("the metrics are at {PATH}\n"), body));
    }
    Some(match pages.page() {
        Some(page) => answer("200 OK", "text/plain; version=0.0.4; charset=utf-8", "", page, body),
        None => answer("503 Service Unavailable", TEXT, "", "this process has not joined the group yet\n", body),
    })
}

fn answer(status: &str, kind: &str, more: &str, text: &str, body: bool) -> Vec<u8> {
    let length = text.len();
    let text = if body { text } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{more}Connection: close\r\n\r\n{text}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves a page that counts how often it was made.
    fn serve() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let page = || Some("spindle_members 3\n".to_string());
        thread::spawn(move || MetricsServer::new(listener, page).run());
        address
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = connect(address);
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn an_address_may_be_a_port_alone() {
        for (text, address) in [
            ("9464", "127.0.0.1:9464"),
            (":0", "127.0.0.1:0"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:9464", "[::1]:9464"),
        ] {
            assert_eq!(parse_address(text), Ok(address.parse().unwrap()));
        }
        for text in ["", "localhost", "99999", "1.2.3.4", "1.2.3.4:x"] {
            assert!(parse_address(text).unwrap_err().contains("127.0.0.1:9464"), "{text:?}");
        }
    }

    #[test]
    fn requests_get_the_answers_of_http() {
        let address = serve();
        for (request, status, text) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK", "spindle_members 3\n"),
            ("GET /metrics?name[]=x HTTP/1.0\n\n", "200 OK", "spindle_members 3\n"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK", ""),
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found", "the metrics are at /metrics\n"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed", "only GET and HEAD are served\n"),
            ("hello\r\n\r\n", "400 Bad Request", "this is no HTTP request\n"),
            ("GET /metrics HTTP/2\r\n\r\n", "400 Bad Request", "this is no request of HTTP/1.1\n"),
        ] {
            let answer = ask(address, request.as_bytes());
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:?}: {answer}");
            assert_eq!(body, text, "{request:?}");
        }
        assert!(ask(address, &[0xff; REQUEST_BYTES_MAX + 1]).starts_with("HTTP/1.1 431 "));
        assert!(ask(address, b"\xff\xfe \x80 HTTP/1.1\n\n").starts_with("HTTP/1.1 400 "));
    }

    #[test]
    fn silent_clients_delay_no_other_one() {
        let address = serve();
        let silent: Vec<TcpStream> = (0..3 * CONNECTIONS_MAX).map(|_| connect(address)).collect();
        let slow: Vec<TcpStream> = silent.into_iter().inspect(|mut client| _ = client.write(b"GET /met")).collect();
        let start = Instant::now();
        assert!(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n").ends_with("spindle_members 3\n"));
        // Clients that were not closed would still be open, unless the machine has stopped.
        assert!(start.elapsed() < CONNECTION_MAX || slow.is_empty());
    }

    #[test]
    fn a_silent_client_is_closed() {
        let mut silent = connect(serve());
        assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_port_that_is_taken_is_a_clear_error() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = format!("{:?}", Exposed::start(address, "g").unwrap_err());
        assert!(error.contains(&format!("can't serve metrics at {address}: ")), "{error}");
        assert!(error.contains("name another port, or 0 for any that is free"), "{error}");
    }
}

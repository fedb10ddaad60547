//! A queue of jobs for many workers, as a replicated object.
//!
//! Run it in three terminals: `cargo run -p spindle-examples --bin work_queue`. Lines are
//! `put FIRST LAST`, which puts a job for each number, `take` and `finish` for one job, `work`, which
//! takes and finishes jobs until the queue is empty, and `show`. Ctrl-D leaves. Kill a worker that
//! has taken a job: another one gets the job.
use anyhow::{Result, bail};
use clap::Parser;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use spindle::{Config, Group};
use spindle_object::{Call, CallError, Context, Replicated, Settings, commands};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// How long a call may wait for the other members.
const WAIT: Duration = Duration::from_secs(30);
/// The interval at which an idle worker looks for jobs that were given back.
const LOOK: Duration = Duration::from_millis(20);
/// The most jobs that wait or are taken.
const JOBS_MAX: usize = 10_000;

/// A worker, with a queue that all workers have.
#[derive(Parser)]
struct Arguments {
    /// The number of members that create the queue together.
    #[arg(long, default_value_t = 3)]
    members: u32,
    /// How long a worker may take for a job, in milliseconds.
    #[arg(long, default_value_t = 10_000)]
    deadline_ms: u64,
    /// The directory where the members meet.
    #[arg(long)]
    runtime_dir: Option<PathBuf>,
}

/// A job is in one of the three: it waits, it is taken, or it is done.
#[derive(Default, Serialize, Deserialize)]
struct Queue {
    waiting: BTreeMap<u64, u64>,
    taken: BTreeMap<u64, Taken>,
    done: u64,
    /// The sum of all results, each counted once.
    sum: u64,
    next_id: u64,
    next_lease: u64,
}

#[derive(Clone, Serialize, Deserialize)]
struct Taken {
    number: u64,
    worker: u64,
    /// Names this taking of the job. A worker whose job was given back has an old one.
    lease: u64,
    /// In the time of the log.
    deadline: Duration,
}

/// A job as its worker has it.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Job {
    id: u64,
    lease: u64,
    number: u64,
}

/// The queue has as many jobs as it may have.
#[derive(Serialize, Deserialize)]
struct Full;

/// The job was given back, because its deadline has passed or its worker was not there.
#[derive(Serialize, Deserialize)]
struct Lost;

#[commands]
impl Queue {
    #[command]
    fn put(&mut self, number: u64) -> Result<u64, Full> {
        if self.waiting.len() + self.taken.len() >= JOBS_MAX {
            return Err(Full);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.waiting.insert(id, number);
        Ok(id)
    }

    /// Takes the oldest job. Jobs whose deadlines have passed wait again.
    #[command]
    fn take(&mut self, context: &mut Context, lasts: Duration) -> Option<Job> {
        let now = context.now();
        self.give_back(|taken| taken.deadline <= now);
        let (id, number) = self.waiting.pop_first()?;
        let lease = self.next_lease;
        self.next_lease += 1;
        let (worker, deadline) = (context.sender().0, now.saturating_add(lasts));
        self.taken.insert(id, Taken { number, worker, lease, deadline });
        Some(Job { id, lease, number })
    }

    /// Finishes a job with its result. Only the worker that has the job now can do so.
    #[command]
    fn finish(&mut self, context: &mut Context, job: Job, result: u64) -> Result<(), Lost> {
        match self.taken.get(&job.id) {
            Some(taken) if taken.lease == job.lease && context.now() < taken.deadline => {
                self.taken.remove(&job.id);
                self.done += 1;
                self.sum = self.sum.wrapping_add(result);
                Ok(())
            }
            _ => Err(Lost),
        }
    }

    /// Gives the jobs of a worker back. Ids of members are not used again.
    #[command]
    fn abandon(&mut self, worker: u64) {
        self.give_back(|taken| taken.worker == worker);
    }

    fn give_back(&mut self, is_due: impl Fn(&Taken) -> bool) {
        let due: Vec<u64> = self.taken.iter().filter(|(_, taken)| is_due(taken)).map(|(id, _)| *id).collect();
        for id in due {
            if let Some(taken) = self.taken.remove(&id) {
                self.waiting.insert(id, taken.number);
            }
        }
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut config = Config::new("queue", arguments.members);
    config.runtime_dir = arguments.runtime_dir;
    config.suspect_after = Some(Duration::from_secs(3));
    eprintln!("waiting for the other members");
    let (group, queue) = Replicated::join(config, "all", Queue::default(), Settings::default())?;
    println!("member {}", queue.member());

    let mut worker = Worker { group, queue, lasts: Duration::from_millis(arguments.deadline_ms), job: None };
    for line in io::stdin().lines() {
        worker.obey(&line?)?;
    }
    // A job that this worker has taken is given back now, and not at its deadline.
    worker.ask(&QueueCalls::abandon(worker.queue.member().0))?;
    let Worker { group, queue, .. } = worker;
    drop(queue);
    group.leave(WAIT)?;
    Ok(())
}

struct Worker {
    group: Group,
    queue: Replicated<Queue>,
    lasts: Duration,
    /// The job that this worker has.
    job: Option<Job>,
}

impl Worker {
    fn obey(&mut self, line: &str) -> Result<()> {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["put", first, last] => {
                for number in first.parse()?..=last.parse()? {
                    if self.ask(&QueueCalls::put(number))?.is_err() {
                        bail!("the queue is full: {JOBS_MAX} jobs wait or are taken");
                    }
                }
                println!("put");
            }
            ["take"] => match self.take()? {
                Some(job) => println!("took job {}", job.id),
                None => println!("no job waits"),
            },
            ["finish"] => self.finish()?,
            ["work"] => self.work()?,
            ["show"] => {
                let (open, done, sum) = self
                    .queue
                    .read_latest(|queue| (queue.waiting.len() + queue.taken.len(), queue.done, queue.sum), WAIT)?;
                println!("{open} jobs open, {done} done, the sum is {sum}");
            }
            _ => eprintln!("unknown line {line:?}: use put FIRST LAST, take, finish, work or show"),
        }
        Ok(())
    }

    /// Calls a command. If the outcome is not known in time, it asks once more: the answer is final.
    fn ask<R: DeserializeOwned>(&self, call: &Call<Queue, R>) -> Result<R, CallError> {
        match self.queue.call(call, WAIT) {
            Err(CallError::Unknown { id, .. }) => self.queue.outcome(id, WAIT),
            other => other,
        }
    }

    fn take(&mut self) -> Result<Option<Job>> {
        self.give_back_of_the_dead()?;
        self.job = self.ask(&QueueCalls::take(self.lasts))?;
        Ok(self.job)
    }

    /// Gives the jobs of members back that are no longer in the view. The view is looked at after the
    /// jobs: a worker that has taken one was a member by then.
    fn give_back_of_the_dead(&self) -> Result<()> {
        let workers: Vec<u64> = self.queue.read(|queue| queue.taken.values().map(|taken| taken.worker).collect())?;
        let view = self.group.view();
        for worker in workers {
            if view.members.iter().all(|member| member.0 != worker) {
                self.ask(&QueueCalls::abandon(worker))?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let Some(job) = self.job.take() else {
            println!("not finished: no job was taken");
            return Ok(());
        };
        let result = job.number.wrapping_mul(job.number);
        match self.ask(&QueueCalls::finish(job, result))? {
            Ok(()) => println!("finished job {}", job.id),
            Err(Lost) => println!("not finished: job {} was given back", job.id),
        }
        Ok(())
    }

    /// Works until no job waits or is taken.
    fn work(&mut self) -> Result<()> {
        loop {
            if self.take()?.is_some() {
                self.finish()?;
            } else if self.queue.read_latest(|queue| queue.waiting.is_empty() && queue.taken.is_empty(), WAIT)? {
                println!("no job is open");
                return Ok(());
            } else {
                thread::sleep(LOOK);
            }
        }
    }
}

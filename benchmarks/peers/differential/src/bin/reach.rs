//! The least depth of every node that roots reach, kept by differential-dataflow on one thread.
//!
//!     reach FILE OUT SUMS BATCH      the graph in one epoch, then its changes, BATCH an epoch
//!
//! FILE holds lines "r node", "e id from to", "+ id from to", "- id from to". Timed: inserting,
//! stepping until the result is out, reading its delta.

use std::{cell::RefCell, collections::HashMap, fs, rc::Rc, time::Instant};

use differential_dataflow::{input::Input, operators::*, VecCollection};
use timely::dataflow::operators::probe::Handle;

type Update = ((u32, u32), isize);

/// What has come out so far: the depths, and Σ (depth + 1) × (node + 1).
#[derive(Default)]
struct Seen {
    depths: HashMap<(u32, u32), isize>,
    total: i64,
}

impl Seen {
    fn add(&mut self, node: u32, depth: u32, weight: isize) {
        self.total += weight as i64 * (depth as i64 + 1) * (node as i64 + 1);
        let sum = self.depths.entry((node, depth)).or_insert(0);
        *sum += weight;
        if *sum == 0 {
            self.depths.remove(&(node, depth));
        }
    }
}

/// The time that this thread, which does all the work, has had a core, in seconds.
fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|ns| ns.parse::<f64>().ok())
        .unwrap_or(f64::NAN)
        / 1e9
}

fn percentile_ms(sorted: &[f64], p: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * p) as usize] * 1e3
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let batch: usize = arguments[4].parse().unwrap();
    let (mut roots, mut graph, mut changes) = (Vec::new(), Vec::new(), Vec::new());
    for line in fs::read_to_string(&arguments[1]).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<u32>().unwrap();
        match words[0] {
            "r" => roots.push(number(1)),
            "e" => graph.push(((number(2), number(3)), 1)),
            "+" => changes.push(((number(2), number(3)), 1)),
            _ => changes.push(((number(2), number(3)), -1)),
        }
    }
    timely::execute_directly(move |worker| {
        let seen = Rc::new(RefCell::new(Seen::default()));
        let (sink, mut probe) = (seen.clone(), Handle::new());
        let (mut edges, mut starts) = worker.dataflow::<usize, _, _>(|scope| {
            let (edge_input, edges) = scope.new_collection::<(u32, u32), isize>();
            let (root_input, roots) = scope.new_collection::<u32, isize>();
            let start = roots.map(|root| (root, 0u32));
            let depths: VecCollection<'_, usize, (u32, u32), isize> = start.clone().iterate(|inner, x| {
                let (edges, start) = (edges.enter(inner), start.enter(inner));
                x.join_map(edges, |_, depth, to| (*to, depth + 1))
                    .concat(start)
                    .reduce(|_, offered, least| least.push((*offered[0].0, 1)))
            });
            depths
                .consolidate()
                .inspect(move |((node, depth), _, weight)| sink.borrow_mut().add(*node, *depth, *weight))
                .probe_with(&mut probe);
            (edge_input, root_input)
        });
        for root in roots {
            starts.insert(root);
        }
        starts.close();
        let mut epoch = 0;
        let mut run = |updates: &[Update]| {
            let begun = Instant::now();
            for (edge, weight) in updates {
                edges.update(*edge, *weight);
            }
            epoch += 1;
            edges.advance_to(epoch);
            edges.flush();
            worker.step_while(|| probe.less_than(edges.time()));
            begun.elapsed().as_secs_f64()
        };
        let load = run(&graph);
        let (mut seconds, mut sums) = (Vec::new(), String::new());
        let cpu = cpu_seconds();
        for part in changes.chunks(batch) {
            seconds.push(run(part));
            sums += &format!("{}\n", seen.borrow().total);
        }
        let cpu = cpu_seconds() - cpu;
        let total: f64 = seconds.iter().sum();
        seconds.sort_by(f64::total_cmp);
        println!(
            "{{\"seconds\": {total:.6}, \"cpu_seconds\": {cpu:.6}, \"load_seconds\": {load:.6}, \"p50_ms\": {:.5}, \"p99_ms\": {:.5}}}",
            percentile_ms(&seconds, 0.5),
            percentile_ms(&seconds, 0.99),
        );
        let depths = seen.borrow();
        let lines = depths.depths.keys().map(|(node, depth)| format!("{node} {depth}\n"));
        fs::write(&arguments[2], lines.collect::<String>()).unwrap();
        fs::write(&arguments[3], sums).unwrap();
    });
}

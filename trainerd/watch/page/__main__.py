import sys

from trainerd.watch.page.server import Page
from trainerd.watch.run_reader import Runs

page = Page(sys.argv[1], Runs(), sys.argv[2] if len(sys.argv) > 2 else None)
print(page.address, flush=True)
page.serve()

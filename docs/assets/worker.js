// Search runs in a worker. Browsers start none from the file system, so there it runs in a hidden
// frame of the same page. Served over HTTP, the browser's own workers are used.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data: structuredClone(data) });
        setTimeout(() => {
          this.dispatchEvent(event);
          this.onmessage?.(event);
        });
      };
      const script = inside.document.createElement("script");
      script.src = new URL(url, document.baseURI).href;
      script.onload = () => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.deliver(data));
      };
      inside.document.body.append(script);
    }

    deliver(data) {
      const inside = this.frame.contentWindow;
      const event = new inside.MessageEvent("message", { data: inside.structuredClone(data) });
      setTimeout(() => inside.dispatchEvent(event));
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.deliver(data);
    }

    terminate() {
      this.frame.remove();
    }
  };
}
